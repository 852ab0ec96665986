"""How far an ingestion is, and how fast it gets on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Of documents, chunks, bytes of the source and tokens.

    Attributes:
        documents: listed so far; `loaded`, `unchanged`, `failed` and `cancelled` of them have ended.
        deleted: documents of earlier ingestions that `sync` took away.
        replaced: of those loaded, in whose place an earlier ingestion had brought another content.
        chunks: cut so far.
        tokens: that the model has read.
        chunk_tokens: of all chunks, counted before.
    """

    documents: int = 0
    loaded: int = 0
    unchanged: int = 0
    failed: int = 0
    cancelled: int = 0
    deleted: int = 0
    chunks: int = 0
    chunks_embedded: int = 0
    chunks_loaded: int = 0
    bytes: int = 0
    bytes_done: int = 0
    tokens: int = 0
    chunk_tokens: int = 0
    pages_parsed: int = 0
    replaced: int = 0

    @property
    def done(self) -> int:
        """Documents that have ended."""
        return self.loaded + self.unchanged + self.failed + self.cancelled

    @property
    def in_progress(self) -> int:
        """Documents that have not."""
        return max(0, self.documents - self.done)


@dataclass(frozen=True, slots=True)
class Setback:
    """How often in a row a kind of job found something away, what, and until when none need be tried again."""

    times: int
    what: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Sample:
    """How far an ingestion was at a moment: `chunks` that are embedded, in a dry run those that are cut."""

    at_ms: int
    documents: int
    chunks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Documents, chunks and source bytes in a second."""

    documents_per_s: float
    chunks_per_s: float
    bytes_per_s: float

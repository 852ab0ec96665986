"""What became of the documents of a page: one stored JSON line each."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, Self

import orjson

from tasks.records.ingestions import IngestionFault
from tasks.storage.storage import Storage
from tasks.unshown import unshown


class DocumentStatus(StrEnum):
    """States of a document; the last four are ends."""

    QUEUED = "queued"
    PARSING = "parsing"
    EMBEDDING = "embedding"
    LOADING = "loading"
    LOADED = "loaded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    COUNTED = "counted"
    """By a dry run, which loads nothing."""


@unshown("ref")
class DocumentOutcome(NamedTuple):
    """What became of one document.

    Attributes:
        stage, code, message: of a failed one: where, and why.
        chunks, tokens: that were cut from it.
        ref: of a failed one: where it is, to try it again; None for what was no document to begin with.
    """

    id: str
    uri: str
    status: DocumentStatus
    stage: str | None = None
    code: str | None = None
    message: str | None = None
    content_hash: str = ""
    chunks: int = 0
    tokens: int = 0
    ref: Mapping[str, Any] | None = None

    @property
    def fault(self) -> IngestionFault | None:
        """Why it has failed."""
        return IngestionFault(self.code, self.message or "") if self.code else None

    def to_line(self) -> bytes:
        """With its line break; absent means the default."""
        if self.chunks and self.tokens and not (self.stage or self.code or self.message or self.ref):  # as most
            fields = {
                "id": self.id,
                "uri": self.uri,
                "status": self.status,
                "content_hash": self.content_hash,
                "chunks": self.chunks,
                "tokens": self.tokens,
            }
            return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)
        return orjson.dumps({name: value for name, value in zip(self._fields, self, strict=True) if value}) + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Inverse of `to_line`."""
        fields = orjson.loads(line)
        return cls(**{"id": "", "uri": "", **fields, "status": DocumentStatus(fields["status"])})


def read_lines(storage: Storage, name: str) -> Iterator[bytes]:
    """Lines of a stored object, without their line breaks; constant memory but for the longest line.

    Raises:
        NotStored: nothing has this name.
        StorageUnavailable: the storage does not answer.
    """
    rest = b""
    for piece in storage.chunks(name):  # far longer than a line: what is left of the one before is hardly anything
        *lines, rest = (rest + piece).split(b"\n")
        yield from filter(None, lines)
    if rest:
        yield rest


def read_outcomes(storage: Storage, name: str) -> Iterator[DocumentOutcome]:
    """The outcomes of a closed page, in the order of its documents; raises like `read_lines`."""
    return map(DocumentOutcome.from_line, read_lines(storage, name))


def read_listed(storage: Storage, manifest: str) -> Iterator[tuple[str, str]]:
    """Id and uri of each entry of a page's manifest, for those who say what is in flight; raises like `read_lines`."""
    for line in read_lines(storage, manifest):
        document_id, uri, *_ = orjson.loads(line)
        yield document_id, uri

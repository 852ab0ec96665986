"""What chunking takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

ChunkingType: TypeAlias = Literal["auto", "static", "none"]

CHUNKER_VERSION = "1"
"""Part of the fingerprint: to be changed with anything that changes chunks."""


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    """How to cut.

    Attributes:
        type: `auto` by structure, up to the model's window; `static` up to `max_tokens` with `overlap_tokens`, without
            regard for structure beyond sentences; `none`: a document is one chunk, cut at the window and marked.
        max_tokens: of one chunk, the model's special tokens and prompt included; None: the window.
        overlap_tokens: of a chunk with the one before it, at most half of `max_tokens`.
    """

    type: ChunkingType = "auto"
    max_tokens: int | None = None
    overlap_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """As it is asked for in a request."""
        if self.type != "static":
            return {"type": self.type}
        static = {"max_chunk_size_tokens": self.max_tokens, "chunk_overlap_tokens": self.overlap_tokens}
        return {"type": "static", "static": static}

    @classmethod
    def from_json(cls, chunking: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`, for a request that has been checked."""
        static = chunking.get("static") or {}
        return cls(chunking["type"], static.get("max_chunk_size_tokens"), static.get("chunk_overlap_tokens") or 0)


@dataclass(slots=True)  # a frozen one takes 1.1 us to make instead of 0.2, twice for each chunk
class Chunk:
    """A slice of a document's text, `text == parsed.text[start:end]`. It does not change.

    Attributes:
        index: from 0, within the document.
        page: on which it begins, from 1; None for a document without pages.
        headings: of the sections around it, the outermost first.
        token_count: that the model reads, special tokens and prompt included; never more than its window.
        truncated: the model reads only its beginning (`none` alone does that).
    """

    index: int
    text: str = field(repr=False)
    start: int
    end: int
    page: int | None
    headings: tuple[str, ...] = field(repr=False)
    token_count: int
    truncated: bool = False

"""How to cut: what a request asks for. Without the libraries that do it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

ChunkingType: TypeAlias = Literal["auto", "static", "none"]

CHUNKER_VERSION = "2"
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

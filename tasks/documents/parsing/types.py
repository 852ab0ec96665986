"""What parsing gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code"]

PARSER_VERSION = "2"
"""Part of the fingerprint: to be changed with anything that changes text or blocks of a document."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a document that belongs together: `text[start:end]` of its `Parsed`.

    Attributes:
        level: of a heading, 1 to 6; 0 otherwise.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text of a document and its structure.

    Attributes:
        text: what is embedded; chunks are slices of it.
        blocks: in order, not overlapping, covering all of the text that is not white space. Empty: structure unknown.
        pages: offsets into `text` at which pages 1, 2, … begin; empty for a document without pages.
        title: if the document says it.
        media_type: as sniffed.
    """

    text: str
    blocks: Sequence[Block] = ()
    pages: Sequence[int] = ()
    title: str | None = None
    media_type: str = "text/plain"

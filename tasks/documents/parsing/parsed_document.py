"""What parsing gives: a document's text, clean and bounded, always covered by its blocks; and how it is built."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tasks.documents.parsing.refusals import empty, no_text, too_large

BlockKind: TypeAlias = Literal["heading", "paragraph", "list", "table", "code"]

PARSER_VERSION = "3"
"""Part of the fingerprint: to be changed with anything that changes text or blocks of a document."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a document that belongs together: `text[start:end]` of its `Parsed`.

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

    text: str = field(repr=False)
    blocks: Sequence[Block] = ()
    pages: Sequence[int] = ()
    title: str | None = field(default=None, repr=False)
    media_type: str = "text/plain"


MAX_TEXT_CHARS = 20_000_000
MAX_BLOCKS = 200_000
SEPARATOR = "\n\n"

_LINE_END = re.compile(r"\r\n?|[\v\f\x85\u2028\u2029]")
# Control characters, lone surrogates, byte order marks and non-characters: nobody searches for them, PostgreSQL takes
# no NUL, and UTF-8 has no surrogates. PDFium marks a hyphen at the end of a line by U+0002: the word's halves meet.
_REMOVED = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")


def clean(text: str) -> str:
    """The text with one kind of line end, and without control characters and invalid ones."""
    return _REMOVED.sub("", _LINE_END.sub("\n", text))


class Builder:
    """Takes blocks in the order in which they are read."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._chars = 0
        self._blocks: list[Block] = []
        self._pages: list[int] = []

    def add(self, kind: BlockKind, text: str, level: int = 0) -> None:
        """Appends a block, unless it is blank.

        Raises:
            DocumentFailed: `document_too_large`.
        """
        text = clean(text).strip("\n")
        if not text.strip():
            return
        if self._chars:
            self._append(SEPARATOR)
        start = self._chars
        self._append(text)
        self._mark(Block(kind, start, self._chars, level))

    def begin_page(self) -> None:
        """Begins the next page with the next block."""
        self._pages.append(len(self._blocks))

    def parsed(self, media_type: str, title: str | None = None) -> Parsed:
        """The document.

        Raises:
            DocumentFailed: `no_text`.
        """
        if not self._blocks:
            raise no_text()
        starts = [block.start for block in self._blocks]
        pages = [starts[index] if index < len(starts) else self._chars for index in self._pages]
        return Parsed("".join(self._parts), tuple(self._blocks), tuple(pages), title_of(title), media_type)

    def _append(self, text: str) -> None:
        self._chars += len(text)
        check_chars(self._chars)
        self._parts.append(text)

    def _mark(self, block: Block) -> None:
        last = self._blocks[-1] if self._blocks else None
        begun = bool(self._pages) and self._pages[-1] == len(self._blocks)
        if last is None or begun or len(self._blocks) < MAX_BLOCKS:
            self._blocks.append(block)
        else:  # blocks beyond all measure would cost more than their text: the last one takes the rest
            self._blocks[-1] = Block("paragraph", last.start, block.end)


def whole(text: str, blocks: list[Block], media_type: str, title: str | None = None) -> Parsed:
    """A document of plain text, which is clean and stays as it is.

    Raises:
        DocumentFailed: `empty_document`.
    """
    if not blocks:
        raise empty()
    return Parsed(text, tuple(_bounded(blocks)), (), title_of(title), media_type)


def check_chars(chars: int) -> None:
    """Raises DocumentFailed for more text than one document may have."""
    if chars > MAX_TEXT_CHARS:
        raise too_large(f"has more than {MAX_TEXT_CHARS:,} characters of text")


def title_of(title: str | None) -> str | None:
    """A title on one line, of reasonable length; None for a blank one."""
    return " ".join(clean(title).split())[:500] or None if title else None


def _bounded(blocks: list[Block]) -> list[Block]:
    if len(blocks) <= MAX_BLOCKS:
        return blocks
    return [*blocks[: MAX_BLOCKS - 1], Block("paragraph", blocks[MAX_BLOCKS - 1].start, blocks[-1].end)]

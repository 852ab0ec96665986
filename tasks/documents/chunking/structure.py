"""Where a text may be divided: pieces of it, and how good a place the beginning of each one is for a cut."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from tasks.documents.chunking.tokens import blank
from tasks.documents.parsing.types import Block

PIECE_CHARS = 1024
"""Longest piece. Sentences are far shorter; a line of a megabyte comes in many pieces, so that memory stays bounded."""


class Break(IntEnum):
    """Places for a cut, the better the higher. Of headings, those of the higher level have the higher value."""

    INSIDE = 0
    """Of a word."""
    HEADING = 1
    """Behind a heading, which belongs to what follows."""
    WORD = 2
    LINE = 3
    SENTENCE = 4
    BLOCK = 5
    SECTION = 6


_LEVELS = 6
_SENTENCE = (
    r"(?P<sentence>[.!?…](?<!\n\d\.)(?<!\n\d\d\.)['\"”’»)\]]*+(?=\s)(?!\s++[a-z])"  # noqa: RUF001 - as texts have them
    r"|[。！？｡][」』”’）]*+)"  # noqa: RUF001
)
"""A full stop behind a number that begins a line is a list's."""
_ROW = r"(?P<row>\n)"
_TEXT = re.compile(rf"(?P<block>\n[^\S\n]*+\n)|{_SENTENCE}|(?P<line>\n)")
"""Of a text without known structure: a single new line may be one, or the end of a screen's width."""
_ENDS = {
    "paragraph": re.compile(_SENTENCE),
    "list": re.compile(rf"{_SENTENCE}|{_ROW}"),
    "table": re.compile(_ROW),
    "code": re.compile(_ROW),
    "heading": None,
}
_VALUES = {"sentence": Break.SENTENCE, "row": Break.SENTENCE, "block": Break.BLOCK, "line": Break.LINE}
_WORD = re.compile(r"\S+")


@dataclass(slots=True)
class Piece:
    """A slice of a text, without white space around it.

    Attributes:
        value: of its beginning as a place for a cut: a `Break`, or more than `SECTION` for a heading.
        apart: a blank lies before it, so that its tokens do not mix with those of the piece before.
        tokens: of its text alone; set by whoever counts.
    """

    text: str
    start: int
    value: int
    apart: bool
    tokens: int = 0

    @property
    def end(self) -> int:
        """Offset behind its last character."""
        return self.start + len(self.text)


def pieces(text: str, blocks: Sequence[Block], *, structured: bool) -> Iterator[Piece]:
    """All of a text but white space, in order.

    Args:
        text: of a document.
        blocks: its structure, as far as it is known.
        structured: whether blocks and headings are places for a cut. False: sentences and words alone.
    """
    end = 0
    for start, stop, pattern, value in _spans(text, blocks):
        for piece in _divided(text, start, stop, pattern, value):
            piece.apart = blank(text[end : piece.start])
            end = piece.end
            if not structured:
                piece.value = min(piece.value, Break.SENTENCE)
            yield piece


def words(piece: Piece) -> list[Piece]:
    """The same piece, word by word; of one that is a single word two halves. Of a single character: itself."""
    found = [
        Piece(match[0], piece.start + match.start(), Break.WORD, apart=True) for match in _WORD.finditer(piece.text)
    ]
    if len(found) == 1 and len(piece.text) > 1:
        half = len(piece.text) // 2
        found = [
            Piece(piece.text[:half], piece.start, Break.INSIDE, apart=True),
            Piece(piece.text[half:], piece.start + half, Break.INSIDE, apart=False),
        ]
    for before, word in pairwise(found):
        word.apart = word.apart and blank(piece.text[before.end - piece.start : word.start - piece.start])
    found[0].value, found[0].apart = piece.value, piece.apart
    return found


_Span = tuple[int, int, re.Pattern[str] | None, int]


def _spans(text: str, blocks: Sequence[Block]) -> Iterator[_Span]:
    """Blocks and what lies between them: start, end, pattern of the ends within, value of the start."""
    end, behind_heading = 0, False
    for block in blocks:
        if text[end : block.start].strip():
            yield end, block.start, _TEXT, Break.HEADING if behind_heading else Break.BLOCK
            behind_heading = False
        value: int = Break.SECTION + _LEVELS - block.level if block.kind == "heading" else Break.BLOCK
        yield block.start, block.end, _ENDS[block.kind], Break.HEADING if behind_heading else value
        end, behind_heading = block.end, block.kind == "heading"
    yield end, len(text), _TEXT, Break.HEADING if behind_heading else Break.BLOCK


def _divided(text: str, start: int, stop: int, pattern: re.Pattern[str] | None, value: int) -> Iterator[Piece]:
    at = start
    for match in pattern.finditer(text, start, stop) if pattern else ():
        if found := _stripped(text, at, match.end(), value):
            yield from found
            value = Break.INSIDE  # until the match says more
        # The best of the places between two pieces: an empty line may follow the end of a sentence.
        value, at = max(value, _VALUES[match.lastgroup or "line"]), match.end()
    yield from _stripped(text, at, stop, value)


def _stripped(text: str, start: int, stop: int, value: int) -> list[Piece]:
    """The slice without white space around it, as pieces that are not too long; none if it is blank."""
    found: list[Piece] = []
    while start < stop:
        raw = text[start:stop] if stop - start <= PIECE_CHARS else text[start : _end_of_words(text, start)]
        kept = raw.strip()
        if raw[0].isspace():
            value = max(value, Break.WORD)
        if kept:
            before = len(raw) - len(raw.lstrip())
            found.append(Piece(kept, start + before, value, apart=True))
            value = Break.WORD if raw[-1].isspace() else Break.INSIDE
        start += len(raw)
    return found


def _end_of_words(text: str, start: int) -> int:
    """Behind the last white space within the length of a piece; that length where there is none."""
    stop = start + PIECE_CHARS
    return next((at for at in range(stop, start, -1) if text[at - 1].isspace()), stop)

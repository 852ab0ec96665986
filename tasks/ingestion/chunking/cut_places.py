"""Pieces of a text, each with the value of its beginning as a place for a cut."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tasks.ingestion.chunking.repeated_header import Frame, frame_of
from tasks.ingestion.parsing.markdown import Block

PIECE_CHARS = 1024
"""Longest piece. Sentences are far shorter; a line of a megabyte comes in many pieces, so that memory stays bounded."""


class Break(IntEnum):
    """Places for a cut; a higher value is better. Headings of a higher level have a higher value."""

    INSIDE = 0
    """Inside of a word."""
    HEADING = 1
    """Behind a heading, or the header of a table, which belongs to what comes after it."""
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
"""A full stop behind a number at the beginning of a line belongs to a list."""
_ROW = r"(?P<row>\n)"
_TEXT = re.compile(rf"(?P<block>\n[^\S\n]*+\n)|{_SENTENCE}|(?P<line>\n)")
"""For a text without known structure: a line break may end a paragraph, or only the width of a screen."""
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
class Stretch:
    """A slice of a text, without white space around it.

    Attributes:
        value: of its beginning as a place for a cut: a `Break`, or more than `SECTION` for a heading.
        frame: of the table or code that it is in.
        tokens: of its text alone; set by the splitter.
    """

    text: str = field(repr=False)
    start: int
    value: int
    frame: Frame | None = field(default=None, repr=False)
    tokens: int = 0

    @property
    def end(self) -> int:
        """Offset behind its last character."""
        return self.start + len(self.text)


def pieces(text: str, blocks: Sequence[Block], *, structured: bool) -> Iterator[Stretch]:
    """The pieces of a text in order, which hold all of it but white space.

    Args:
        text: of a document.
        blocks: its structure, as far as it is known.
        structured: whether blocks and headings are places for a cut. False: sentences and words alone.
    """
    for span in _spans(text, blocks):
        for piece in _divided(text, span):
            if not structured:
                piece.value = min(piece.value, Break.SENTENCE)
            yield piece


def words(piece: Stretch) -> list[Stretch]:
    """The words of a piece; the two halves of a single word; a single character as it is."""
    places = [match.span() for match in _WORD.finditer(piece.text)]
    value = Break.WORD
    if len(places) == 1 and len(piece.text) > 1:
        half, value = len(piece.text) // 2, Break.INSIDE
        places = [(0, half), (half, len(piece.text))]
    parts = [Stretch(piece.text[start:end], piece.start + start, value, piece.frame) for start, end in places]
    parts[0].value = piece.value
    return parts


class _Span(NamedTuple):
    """A block, or the text between two: the pattern of the ends within it, and the value of its start."""

    start: int
    stop: int
    ends: re.Pattern[str] | None
    value: int
    frame: Frame | None = None


def _spans(text: str, blocks: Sequence[Block]) -> Iterator[_Span]:
    end, behind_heading = 0, False
    for block in blocks:
        if text[end : block.start].strip():
            yield _Span(end, block.start, _TEXT, Break.HEADING if behind_heading else Break.BLOCK)
            behind_heading = False
        value: int = Break.SECTION + _LEVELS - block.level if block.kind == "heading" else Break.BLOCK
        value = Break.HEADING if behind_heading else value
        yield _Span(block.start, block.end, _ENDS[block.kind], value, frame_of(text, block))
        end, behind_heading = block.end, block.kind == "heading"
    yield _Span(end, len(text), _TEXT, Break.HEADING if behind_heading else Break.BLOCK)


def _divided(text: str, span: _Span) -> Iterator[Stretch]:
    at, value, frame = span.start, span.value, span.frame
    for match in span.ends.finditer(text, span.start, span.stop) if span.ends else ():
        if frame and match.end() == frame.stop:
            break  # the fence that closes code stays with its last line
        if parts := _stripped(text, at, match.end(), value, frame):
            yield from parts
            value = Break.INSIDE  # until the match says more
        found = Break.HEADING if frame and match.end() <= frame.start else _VALUES[match.lastgroup or "line"]
        # The best of the places between two pieces: an empty line may follow the end of a sentence.
        value, at = max(value, found), match.end()
    yield from _stripped(text, at, span.stop, value, frame)


def _stripped(text: str, start: int, stop: int, value: int, frame: Frame | None) -> list[Stretch]:
    """The slice without white space around it, as pieces that are not too long; none if it is blank."""
    stripped: list[Stretch] = []
    while start < stop:
        raw = text[start:stop] if stop - start <= PIECE_CHARS else text[start : _end_of_words(text, start)]
        kept = raw.strip()
        if raw[0].isspace():
            value = max(value, Break.WORD)
        if kept:
            before = len(raw) - len(raw.lstrip())
            stripped.append(Stretch(kept, start + before, value, frame))
            value = Break.WORD if raw[-1].isspace() else Break.INSIDE
        start += len(raw)
    return stripped


def _end_of_words(text: str, start: int) -> int:
    """Behind the last white space within the length of a piece; that length where there is none."""
    stop = start + PIECE_CHARS
    return next((at for at in range(stop, start, -1) if text[at - 1].isspace()), stop)

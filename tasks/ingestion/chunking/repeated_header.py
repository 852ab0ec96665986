"""What each part of a divided table or of code repeats: the header of the table, the fences of the code."""

import re
from typing import NamedTuple

from tasks.ingestion.parsing.markdown import Block

_HEADER = re.compile(r"[^\n]*+\n[^\n]*+\n")
_OPENING = re.compile(r"( {0,3}(`{3,}+|~{3,}+))[^\n]*+\n")

_SHARE = 4


class Frame(NamedTuple):
    """What makes sense of a part of a table or of code: the header, or the fences.

    Attributes:
        head: put before a chunk that begins within the block's body, `text[start:stop]`.
        tail: put behind a chunk that ends before `end`, which is the block's.
    """

    head: str
    tail: str
    start: int
    stop: int
    end: int


def frame_of(text: str, block: Block) -> Frame | None:
    """Of a table with a header, or of fenced code; other blocks have none."""
    if block.kind == "table" and (header := _HEADER.match(text, block.start, block.end)):
        return Frame(header[0], "", header.end(), block.end, block.end)
    if block.kind == "code" and (opening := _OPENING.match(text, block.start, block.end)):
        last = text.rfind("\n", opening.end(), block.end) + 1 or opening.end()
        closed = text[last : block.end].strip()
        stop = last if closed and not closed.strip(opening[2][0]) else block.end
        return Frame(opening[0], f"\n{opening[1]}", opening.end(), stop, block.end)
    return None


def is_short(size: int, chunk: int) -> bool:
    """Whether so much may be repeated in each chunk of that size: at most one part in four."""
    return _SHARE * size <= chunk

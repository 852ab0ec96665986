"""Lines of a file that comes in pieces: where each lies and what is in it, in bounded memory. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank.

    Attributes:
        number: counts from 1, blank lines too, as an editor does.
        offset: of its first byte in the file.
        data: its bytes without the line break; None: it is longer than allowed.
    """

    number: int
    offset: int
    data: bytes | None


def split_lines(chunks: Iterable[bytes], max_line_bytes: int) -> Iterator[Line]:
    """The lines of a file. Of a line above `max_line_bytes` no more than that is ever kept."""
    number, offset, held, overflowing = 1, 0, b"", False
    for chunk in chunks:
        pieces = chunk.split(b"\n")
        for piece in pieces[:-1]:
            length = len(held) + len(piece)
            yield from _line(number, offset, None if overflowing else held + piece, max_line_bytes)
            number, offset, held, overflowing = number + 1, offset + length + 1, b"", False
        held += pieces[-1]
        if len(held) > max_line_bytes + len(_BOM):
            # Its number of bytes still counts: the lines behind it must be found.
            offset, held, overflowing = offset + len(held), b"", True
    yield from _line(number, offset, None if overflowing else held, max_line_bytes)


def _line(number: int, offset: int, data: bytes | None, max_line_bytes: int) -> Iterator[Line]:
    if data is None:
        yield Line(number, offset, None)
        return
    if offset == 0 and data.startswith(_BOM):
        offset, data = len(_BOM), data[len(_BOM) :]
    data = data.removesuffix(b"\r")
    if data.strip():
        yield Line(number, offset, data if len(data) <= max_line_bytes else None)

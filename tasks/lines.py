"""Lines of a file that comes in pieces, in bounded memory."""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import AnyStr, Generic, NamedTuple

from tasks.unshown import unshown


@unshown("data")
class RawLine(NamedTuple, Generic[AnyStr]):
    r"""One line; only "\n" ends one.

    Attributes:
        data: without its line break; None: it is longer than allowed.
        size_bytes: in the file, line break included. So the offset of a line is the sum of those before it.
        ended: whether a line break follows; the last line of a file may have none.
    """

    data: AnyStr | None
    size_bytes: int
    ended: bool = True


def split_lines(
    pieces: Iterable[AnyStr],
    line_end: AnyStr,
    max_bytes: int = sys.maxsize,
    size_of: Callable[[AnyStr], int] = len,
) -> Iterator[RawLine[AnyStr]]:
    """The lines of a file that comes in pieces. Of a longer line `max_bytes` are kept at most.

    Args:
        pieces: of the file, in order.
        line_end: the line break, of the type of the pieces.
        max_bytes: of a line without its break.
        size_of: bytes of some text in the file.
    """
    held: list[AnyStr] = []
    size_bytes, end_bytes = 0, size_of(line_end)
    for piece in pieces:
        parts: list[AnyStr] = piece.split(line_end)
        rest = parts.pop()
        for part in parts:
            size_bytes += size_of(part)
            held.append(part)
            yield RawLine(line_end[:0].join(held) if size_bytes <= max_bytes else None, size_bytes + end_bytes)
            held.clear()
            size_bytes = 0
        size_bytes += size_of(rest)
        if size_bytes <= max_bytes:
            held.append(rest)
        else:  # its bytes still count: the lines behind it must be found
            held.clear()
    if size_bytes:
        yield RawLine(line_end[:0].join(held) if size_bytes <= max_bytes else None, size_bytes, ended=False)


def encoding_fault(data: bytes) -> str | None:
    """What is wrong with the encoding of a line that is no JSON; None: nothing."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "The file is in UTF-16. Save it as UTF-8."
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"The line is not in UTF-8 (byte {error.start}). Save the file as UTF-8."
    return None

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


class LineSplitter(Generic[AnyStr]):
    """Takes the pieces of a file as they come, and gives its lines. Of a longer line `max_bytes` are kept at most.

    Args:
        line_end: the line break, of the type of the pieces.
        max_bytes: of a line without its break.
        size_of: bytes of some text in the file.
    """

    def __init__(self, line_end: AnyStr, max_bytes: int = sys.maxsize, size_of: Callable[[AnyStr], int] = len) -> None:
        self._line_end: AnyStr = line_end
        self._max_bytes = max_bytes
        self._size_of: Callable[[AnyStr], int] = size_of
        self._end_bytes = size_of(line_end)
        self._held: list[AnyStr] = []
        self._size = 0

    def feed(self, piece: AnyStr) -> Iterator[RawLine[AnyStr]]:
        """The lines that end in this piece. To be iterated to its end before the next piece is fed."""
        parts: list[AnyStr] = piece.split(self._line_end)
        rest = parts.pop()
        for part in parts:
            # Most lines lie within one piece: nothing is held of them.
            size = self._size_of(part)
            if self._size:
                self._hold(part, size)
                yield self._joined(ended=True)
            else:
                yield RawLine(part if size <= self._max_bytes else None, size + self._end_bytes)
        if rest:
            self._hold(rest, self._size_of(rest))

    def finish(self) -> Iterator[RawLine[AnyStr]]:
        """The last line, if no line break follows it."""
        if self._size:
            yield self._joined(ended=False)

    def _hold(self, part: AnyStr, size: int) -> None:
        self._size += size
        if self._size <= self._max_bytes:
            self._held.append(part)
        else:  # its bytes still count: the lines behind it must be found
            self._held.clear()

    def _joined(self, *, ended: bool) -> RawLine[AnyStr]:
        data = self._line_end[:0].join(self._held) if self._size <= self._max_bytes else None
        size_bytes = self._size + self._end_bytes * ended
        self._held.clear()
        self._size = 0
        return RawLine(data, size_bytes, ended)


def split_lines(pieces: Iterable[bytes], max_bytes: int = sys.maxsize) -> Iterator[RawLine[bytes]]:
    """The lines of a file."""
    splitter = LineSplitter(b"\n", max_bytes)
    for piece in pieces:
        yield from splitter.feed(piece)
    yield from splitter.finish()


def encoding_fault(data: bytes) -> str | None:
    """What is wrong with the encoding of a line that is no JSON; None: nothing."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "The file is in UTF-16. Save it as UTF-8."
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return f"The line is not in UTF-8 (byte {error.start}). Save the file as UTF-8."
    return None

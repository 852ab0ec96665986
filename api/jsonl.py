"""A look at what should be JSON Lines, while it comes in."""

import orjson

from tasks.json_lists import has_more_parts

LOOK_LINES = 50_000
"""The most requests that a batch may have: a file without one among so many lines is of no use."""
_BOM = b"\xef\xbb\xbf"


class LineProbe:
    """Finds out whether at least one line of a file is a JSON object.

    Args:
        max_line_bytes: a longer line counts as none, so that memory is bounded.
        max_lists: one with more lists, objects and fields likewise.
    """

    def __init__(self, max_line_bytes: int, max_lists: int) -> None:
        self.found = False
        self._max_line_bytes = max_line_bytes
        self._max_lists = max_lists
        self._line = bytearray()
        self._too_long = False
        self._lines = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the file."""
        start = 0
        while not self.found and self._lines < LOOK_LINES:
            end = data.find(b"\n", start)
            self._grow(data[start : end if end >= 0 else len(data)])
            if end < 0:
                return
            self._end_line()
            start = end + 1

    def finish(self) -> bool:
        """The file is over: whether there is such a line."""
        self._end_line()
        return self.found

    def _grow(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > self._max_line_bytes:
            self._too_long = True
            self._line.clear()
        if not self._too_long:
            self._line += piece

    def _end_line(self) -> None:
        if not self.found and not self._too_long:
            line = bytes(self._line).removeprefix(_BOM) if self._lines == 0 else bytes(self._line)
            self.found = _is_object(line, self._max_lists)
        self._lines += 1
        self._line.clear()
        self._too_long = False


def _is_object(line: bytes, max_lists: int) -> bool:
    if not line.lstrip().startswith(b"{") or has_more_parts(line, max_lists):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True

"""From pieces of output to whole lines."""

_MAX_LINE_BYTES = 64 * 2**10


class LineSplitter:
    """Collects bytes until a line is complete. A line that never ends is cut, so that memory stays bounded."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, piece: bytes) -> list[str]:
        """The lines that `piece` completes, without their ends. Bytes that are not UTF-8 are replaced."""
        *lines, self._pending = (self._pending + piece).split(b"\n")
        if len(self._pending) >= _MAX_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        return [_decoded(line) for line in lines]

    def rest(self) -> list[str]:
        """The unfinished last line, if there is one."""
        rest, self._pending = self._pending, b""
        return [_decoded(rest)] if rest else []


def _decoded(line: bytes) -> str:
    return line.rstrip(b"\r").decode(errors="replace")

"""Bytes that can be read by range, as a file that can be read anywhere: for libraries that want a file."""

import io
from collections.abc import Callable


class RangeFile(io.RawIOBase):
    """A file that is read by ranges.

    Args:
        read_range: the bytes from one on, as many as are asked for; fewer where they end.
        size_bytes: of all.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__()
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """The place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Moves the place; returns it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes; all that are left for None and numbers below 0."""
        left = max(self._size_bytes - self._at, 0)
        data = self._read_range(self._at, left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

"""Where an object is put together before anybody sees it: a file in the storage's folder, or the spool.

The spool is a file in the temporary folder (`TMPDIR`) of this machine, on its way into a bucket.
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from tasks.errors import DiskFull, StorageUnavailable

STORAGE = "The storage (EMBEDQ_STORAGE_URL)"
TEMPORARY = "The temporary folder (TMPDIR), through which uploads go into the storage,"

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_RETRY_S = 60
_RETRY_S = {STORAGE: 10, TEMPORARY: 60}


class Writer:
    """Appends to a file that nobody sees yet. `size_bytes`: what has been written so far."""

    def __init__(self, file: IO[bytes], place: str = STORAGE) -> None:
        self._file = file
        self._place = place
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Appends.

        Raises:
            DiskFull: there is no room.
            StorageUnavailable: anything else that the place refuses.
        """
        try:  # not `translated`: lines come one by one, and making its context takes longer than most writes
            self._file.write(data)
        except OSError as error:
            raise _refused(error, self._place) from error
        self.size_bytes += len(data)


class Spool(Writer):
    """Appends to a file that has no name, so that nothing of it outlives the process."""

    def finish(self) -> str:
        """A path under which this process can read what was written, until the spool is closed; raises as `write`."""
        with translated(self._place):
            self._file.seek(0)  # flushes; and where opening the path only doubles the descriptor, reading begins here
        return f"/dev/fd/{self._file.fileno()}"


@contextmanager
def spooling() -> Iterator[Spool]:
    """A spool, gone at the end of the block.

    Raises:
        DiskFull, StorageUnavailable: the temporary folder takes no file.
    """
    with translated(TEMPORARY):
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below: its own end would flush again, and fail again
    try:
        yield Spool(file, TEMPORARY)
    finally:
        with suppress(OSError):
            file.close()


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Raises an `OSError` as one of ours, with the reason alone: the path is nothing for callers.

    Raises:
        DiskFull: there is no room in the place.
        StorageUnavailable: anything else.
    """
    try:
        yield
    except OSError as error:
        raise _refused(error, place) from error


def _refused(error: OSError, place: str) -> DiskFull | StorageUnavailable:
    if error.errno in _FULL:
        return DiskFull(f"{place} is full. Nothing was stored.", retry_after_s=_FULL_RETRY_S)
    reason = os.strerror(error.errno) if error.errno else "unknown reason"
    return StorageUnavailable(f"{place} cannot be used: {reason}. Nothing was stored.", retry_after_s=_RETRY_S[place])

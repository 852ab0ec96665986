"""The spool: where an object for a bucket is put together first, in the temporary folder (`TMPDIR`) of this machine."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from tasks.errors import DiskFull, StorageUnavailable
from tasks.storage.folder import FULL


class Spool:
    """Appends to a file that has no name, so that nothing of it outlives the process."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """See `Writer.write`."""
        with _translated():
            self._file.write(data)
        self.size_bytes += len(data)

    def finish(self) -> str:
        """A path under which this process can read what was written, until the spool is closed.

        Raises:
            DiskFull, StorageUnavailable: as `write`.
        """
        with _translated():
            self._file.seek(0)  # flushes; and where opening the path only doubles the descriptor, reading begins here
        return f"/dev/fd/{self._file.fileno()}"


@contextmanager
def spooling() -> Iterator[Spool]:
    """A spool, gone at the end of the block.

    Raises:
        DiskFull, StorageUnavailable: the temporary folder takes no file.
    """
    with _translated():
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below: its own end would flush again, and fail again
    try:
        yield Spool(file)
    finally:
        with suppress(OSError):
            file.close()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFull(
                "The temporary folder (TMPDIR), through which uploads go into the storage, is full. "
                "Nothing was stored.",
                retry_after_s=60,
            ) from error
        reason = os.strerror(error.errno or errno.EIO)
        raise StorageUnavailable(
            f"The temporary folder (TMPDIR), through which uploads go into the storage, cannot be used: {reason}. "
            "Nothing was stored.",
            retry_after_s=60,
        ) from error

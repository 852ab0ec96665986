"""The folder in which a local stack keeps its data. One stack at a time."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.errors import StackError
from worker_config.data_folder import ADDRESS

_POLL_S = 0.05


@contextmanager
def locked(folder: Path, *, patience_s: float = 2.0) -> Iterator[int]:
    """Creates the folder and holds its lock; the lock's file descriptor.

    `patience_s`: how long to wait for a stack that is just ending.

    A process that inherits the descriptor holds the lock too. Redis does, so its data is never opened twice, not even
    while the Redis of a killed stack is still writing.

    Raises:
        StackError: another stack holds it, or the folder cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StackError(f"{folder} cannot hold the data: {error.strerror}. Choose another folder: --data.") from None
    try:
        _lock(descriptor, folder, patience_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def write_address(folder: Path, redis_url: str) -> None:
    """Leaves the address of the stack's Redis, which may hold a password, for this user alone: `embedq keys create`.

    Raises:
        StackError: the folder cannot be written.
    """
    file = folder / ADDRESS
    try:
        remove_address(folder)  # whoever could read the former file reads nothing of this one
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(f"{redis_url}\n")
    except OSError as error:
        raise StackError(f"{file} cannot be written: {error.strerror}. Choose another folder: --data.") from None


def remove_address(folder: Path) -> None:
    """Its Redis has stopped."""
    (folder / ADDRESS).unlink(missing_ok=True)


def _lock(descriptor: int, folder: Path, patience_s: float) -> None:
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                holder = os.pread(descriptor, 32, 0).decode().strip() or "unknown"
                raise StackError(
                    f"Another local stack (pid {holder}) uses {folder}. Stop it, or choose another folder: --data."
                ) from None
            time.sleep(_POLL_S)
        else:
            return

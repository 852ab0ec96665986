"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def synced_file(path: Path) -> Iterator[BinaryIO]:
    """A new file to write bytes to, which is on disk at the end of the block."""
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write bytes to, which replaces `path` at the end of the block, on disk by then.

    After an exception in the block, `path` is as it was before, and no other file is left.
    """
    part = path.with_name(path.name + ".part")
    try:
        with synced_file(part) as file:
            yield file
        part.replace(path)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)  # the name that the user gave
        raise
    finally:
        part.unlink(missing_ok=True)

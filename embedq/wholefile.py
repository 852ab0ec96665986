"""Files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write bytes to, which takes the place of `path` at the end of the block, on disk by then.

    After an exception in the block, `path` is as it was before and nothing else is left.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(path)  # the name that somebody gave
        raise
    finally:
        part.unlink(missing_ok=True)

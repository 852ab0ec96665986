"""What an operator does with the file of a dataset: a copy, a look for damage, the room of what was deleted."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks.datasets.contents import DatasetGone
from tasks.datasets.sqlite.dataset_file import DatasetFile, told
from tasks.datasets.sqlite.schema import open_file


def backup(file: DatasetFile, target: Path) -> None:
    """Writes a copy as it is now into a new file. Loads wait for it, searches do not.

    Raises:
        OSError: the copy cannot be made there; FileExistsError: there is something.
        DatasetGone: there is no dataset.
        SinkUnavailable, Invalid: it cannot be read, or there is no room for the copy.
    """
    target.touch(exist_ok=False)
    try:
        with _alone(file) as db:
            db.execute("VACUUM INTO ?", (str(target),))
    except BaseException:
        target.unlink()
        raise


def check(file: DatasetFile) -> list[str]:
    """What SQLite finds wrong with the file, in its words; nothing: it is whole. Raises as `backup`."""
    with _alone(file) as db:
        try:
            found = [text for (text,) in db.execute("PRAGMA integrity_check")]
        except sqlite3.DatabaseError as error:  # too much to go on looking
            found = [str(error)]
    return [] if found == ["ok"] else found


def vacuum(file: DatasetFile) -> None:
    """Gives the room of what was deleted back to the disk. Needs room for a second file. Raises as `backup`."""
    with _alone(file) as db:
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("VACUUM")


@contextmanager
def _alone(file: DatasetFile) -> Iterator[sqlite3.Connection]:
    with told(file.name), file.locked():
        path = file.path()
        if path is None:
            raise DatasetGone
        db = open_file(path)
        try:
            yield db
        finally:
            db.close()

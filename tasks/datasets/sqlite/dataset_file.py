"""Where the file of a dataset is, who may write it, and what its errors mean.

<datasets>/<owner>/label                        name of the owner's key, as it was when a dataset was made
<datasets>/<owner>/<name>.dataset/lock          taken (flock) by whoever writes, makes or deletes
<datasets>/<owner>/<name>.dataset/<id>.sqlite   the dataset; the name is never used twice
"""

import errno
import fcntl
import os
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tasks.datasets.sqlite.schema import OtherFormat, make_file, open_file
from tasks.errors import Invalid, SinkUnavailable

_FOLDER, _FILE, _NEW, _LABEL = ".dataset", ".sqlite", ".new", "label"
_LOCK_S = 600.0
_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.02
_SHARED = re.compile(
    r"nfs|cifs|smb|fuse|9p|ceph|lustre|gpfs|afs|beegfs|glusterfs|vboxsf|virtiofs|ocfs2|gfs2|prl_fs|drvfs|orangefs"
)
"""Beginnings of names of file systems that several machines share, or a host and its virtual machine."""
_MOUNTS = Path("/proc/self/mountinfo")


class DatasetFile:
    """The file of a dataset of an owner, which may not exist yet.

    Args:
        datasets: the folder of all datasets.
        owner: an id of letters, digits, "-" and "_".
        name: see `names.is_dataset_name`.
        label: of the owner; see `Datasets.store`.
    """

    def __init__(self, datasets: Path, owner: str, name: str, label: str = "") -> None:
        self.folder = datasets / owner / f"{name}{_FOLDER}"
        self.name, self._label = name, label

    def path(self) -> Path | None:
        """The file; None where there is no dataset."""
        return min(self.folder.glob(f"*{_FILE}"), default=None)

    @contextmanager
    def locked(self, progress: Callable[[], None] = lambda: None) -> Iterator[None]:
        """One writer at a time, over all processes of this machine. Who dies lets it go.

        Raises:
            SinkUnavailable: another writer has had it for too long.
            OSError: it cannot be had.
        """
        until, pause_s = time.monotonic() + _LOCK_S, _PAUSE_S
        progress()  # who has lost its claim does not begin
        while (lock := self._lock()) is None:
            if time.monotonic() > until:
                raise SinkUnavailable(
                    f"Another process has been writing into the dataset {self.name} for {_LOCK_S:.0f} s. If a "
                    "documents worker stands still, restart it.",
                    retry_after_s=10,
                )
            time.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)
            progress()
        try:
            yield
        finally:
            os.close(lock)

    def _lock(self) -> int | None:
        """The file that is locked; None: by somebody else, or it was renamed with its folder meanwhile."""
        place = self.folder / "lock"
        try:
            with suppress(FileExistsError):  # also of one that is renamed in this moment
                self.folder.mkdir(parents=True)
            lock = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = place.stat().st_ino == os.fstat(lock).st_ino
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            os.close(lock)
        return lock if mine else None

    def made(self) -> Path:
        """The file to be written, made if there is none; under the lock. Nobody finds it before it is complete.

        Raises:
            Invalid: the folder is on a file system that several machines may share.
            sqlite3.Error, OSError: it cannot be made.
        """
        require_local(self.folder)
        there = self.path()
        if there is not None:
            return there
        try:
            new = self.folder / f"{secrets.token_hex(8)}{_NEW}"
            path = self.folder / f"{make_file(new)}{_FILE}"
            new.rename(path)
        finally:
            for left in self.folder.glob(f"*{_NEW}*"):  # its journal, or of a process that was killed here
                left.unlink()
        if self._label:
            (self.folder.parent / _LABEL).write_text(f"{self._label}\n")
        for folder in (self.folder, self.folder.parent, self.folder.parent.parent):  # all may be new
            _flush(folder)
        return path

    def delete(self, progress: Callable[[], None] = lambda: None) -> bool:
        """Deletes the dataset; whether there was one. Who reads it may finish, who writes next finds no file."""
        if self.path() is None:
            return False
        with self.locked(progress):
            path = self.path()
            if path is None:
                return False
            path.unlink()
            Path(f"{path}-journal").unlink(missing_ok=True)
            _flush(self.folder)
            return True

    def rename(self, name: str) -> bool:
        """Gives the dataset another name; whether it has it now: not if there is none, or there is one of that name.

        Whoever reads or writes it next under the old name finds none.
        """
        to = DatasetFile(self.folder.parent.parent, self.folder.parent.name, name)
        if self.path() is None or to.folder == self.folder:
            return False
        first, second = sorted((self, to), key=lambda file: file.folder)  # as everybody takes both
        with first.locked(), second.locked():
            path = self.path()
            if path is None or to.path() is not None:
                return False
            open_file(path).close()  # undoes what somebody who was killed has left in the journal
            path.rename(to.folder / path.name)
            Path(f"{path}-journal").unlink(missing_ok=True)
            for folder in (to.folder, self.folder, self.folder.parent):
                _flush(folder)
            return True


def dataset_names(datasets: Path, owner: str) -> list[str]:
    """Of the datasets of an owner, in order."""
    files = (datasets / owner).glob(f"*{_FOLDER}/*{_FILE}")
    return sorted({file.parent.name.removesuffix(_FOLDER) for file in files})


def held_bytes(datasets: Path, owner: str) -> int:
    """Of all datasets of an owner, on the disk."""
    held = 0
    for file in (datasets / owner).glob(f"*{_FOLDER}/*{_FILE}"):
        with suppress(FileNotFoundError):  # deleted in this moment
            held += file.stat().st_size
    return held


def require_local(folder: Path, mounts: str | None = None) -> None:
    """Refuses a folder that several machines may share: SQLite's locks do not reach over it, and the file is damaged.

    Raises:
        Invalid: it is on such a file system.
    """
    kind = filesystem_of(folder, mounts)
    if _SHARED.match(kind):
        raise Invalid(
            "sink_refused",
            f"Datasets cannot be on {kind}, which other machines may share. Set EMBEDQ_DATASETS to a folder on a local "
            "disk, or, for several hosts, to a postgresql:// URL.",
            param="sink.dataset",
        )


def filesystem_of(folder: Path, mounts: str | None = None) -> str:
    """The type of a folder's file system, by the longest mount point above it; "" where nobody says."""
    try:
        lines = (_MOUNTS.read_text() if mounts is None else mounts).splitlines()
    except OSError:
        return ""
    longest, kind, here = 0, "", f"{folder.resolve()}/"
    for line in lines:
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), left.split()[4])
        inside = here.startswith(f"{point.rstrip('/')}/")
        if inside and len(point) >= longest:  # of two at one place the later one hides the other
            longest, kind = len(point), right.split()[0]
    return kind


@contextmanager
def told(name: str) -> Iterator[None]:
    """Errors of SQLite and of the folder in the words of this project.

    Raises:
        SinkUnavailable: it passes, or an operator can mend it: the disk is full, the file busy or read-only.
        Invalid: the file is damaged, or of another format.
    """
    try:
        yield
    except OtherFormat as error:
        raise Invalid(
            "sink_refused",
            f"The file of the dataset {name} has {error}. Use the version that wrote it, or load all again.",
            param="sink.dataset",
        ) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _PASSING:
            raise SinkUnavailable(f"The file of the dataset {name} {_PASSING[code]}.", retry_after_s=10) from error
        what = "is damaged" if code in _DAMAGED else f"cannot be used ({error})"
        raise Invalid(
            "sink_refused",
            f"The file of the dataset {name} {what}. Put a backup in its place, or delete it and load all again.",
            param="sink.dataset",
        ) from error
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
        raise SinkUnavailable(
            f"The folder of the dataset {name} cannot be written ({reason}).", retry_after_s=10
        ) from error


_PASSING = {
    sqlite3.SQLITE_BUSY: "is kept busy by a reader or a writer that stands still",
    sqlite3.SQLITE_LOCKED: "is kept busy by another connection",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_IOERR: "cannot be read or written: its disk reports an error, or is full",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: look at the rights of its folder",
    sqlite3.SQLITE_PERM: "may not be written by this user",
}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Storage in a folder of this machine or of a network file system: written beside, fsynced, then renamed."""

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from tasks.errors import DiskFull, EmbedqError, NotStored, StorageUnavailable

STORAGE = "The storage (EMBEDQ_STORAGE_URL)"
TEMPORARY = "The temporary folder (TMPDIR), through which uploads go into the storage,"
INCOMING = ".incoming"
"""Folder of what is being written. Names of objects do not begin with a dot, so it is out of their reach. It is
made once: where it is missing later, this is not the storage that was opened."""

_RETRY_S = {STORAGE: 10, TEMPORARY: 60}
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
"""What CIFS and FUSE say to an fsync of a folder: they have none, and nothing that it could be for."""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_RENAME_TRIES = 4
_BUFFER_BYTES = 64 * 1024
"""Held before they are written: most of what is stored are short lines."""


class LocalFolder:
    """Objects as files below `root`. The root itself is made once: one that vanished is an unmounted disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @staticmethod
    def path_of(url: str) -> Path | None:
        """The folder that a `file://` URL or a bare path names; None for another scheme.

        Raises:
            StorageUnavailable: it begins with `~`, and there is no home folder.
        """
        if "://" not in url:
            try:
                return Path(url).expanduser().absolute()
            except RuntimeError:
                raise StorageUnavailable(
                    "EMBEDQ_STORAGE_URL begins with ~, and this user has no home folder. Name a whole path.",
                    retry_after_s=60,
                ) from None
        parts = urlsplit(url)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None

    def make(self) -> None:
        """Creates the folder if it is not there: for its owner, and for a group to which the one above was given."""
        with self._translated(self._root):
            self._root.parent.mkdir(parents=True, exist_ok=True)
            _make_folder(self._root, _shared_rights(self._root.parent, needs=0o2020))
            _make_folder(self._root / INCOMING, _shared_rights(self._root))

    @contextmanager
    def writing(self, name: str, _: Callable[[], None]) -> Iterator["_FileWriter"]:
        """See `Storage.writing`."""
        unfinished, target = self._root / INCOMING / secrets.token_hex(16), self._root / name
        with self._translated(unfinished):
            # Its folder is never made anew: what is written below the mount point of an unmounted disk is lost to all.
            file = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", _BUFFER_BYTES)
        try:
            yield _FileWriter(file)
            with self._translated(target):
                file.flush()
                _allow(unfinished, 0o600, _shared_rights(self._root) & 0o060)
                os.fsync(file.fileno())
                self._rename(unfinished, target)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        finally:
            with suppress(OSError):  # what could not be flushed has been reported by write or fsync already
                file.close()

    def _rename(self, unfinished: Path, target: Path) -> None:
        for failed in range(_RENAME_TRIES):
            try:
                if failed:
                    for folder in reversed(target.relative_to(self._root).parents[:-1]):
                        if _make_folder(self._root / folder, _shared_rights(self._root)):
                            _sync_folder((self._root / folder).parent)
                unfinished.replace(target)
            except FileNotFoundError:
                continue  # its folder was never made, or somebody has deleted the empty one in between
            _sync_folder(target.parent)
            return
        raise OSError(errno.ENOENT, "a folder of the storage is deleted again and again")

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        with self._existing(self._root / name), (self._root / name).open("rb") as file:
            file.seek(first)
            return file.read(-1 if size is None else size)

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        with self._existing(self._root / name):
            return (self._root / name).stat().st_size

    def delete(self, name: str) -> None:
        """Removes one file, and the folders of a batch that it leaves empty."""
        with suppress(NotStored), self._existing(self._root / name):
            (self._root / name).unlink()
            with suppress(OSError):  # not empty
                for folder in Path(name).parents[:-2]:
                    (self._root / folder).rmdir()

    def delete_all(self, names: Iterable[str], go_on: Callable[[], object]) -> None:
        """See `Storage.delete_all`."""
        for name in names:
            go_on()
            self.delete(name)

    def delete_below(self, folder: str, go_on: Callable[[], object]) -> None:
        """Removes a folder with everything in it, also while others remove some of it."""
        with self._translated(self._root / folder):
            for name, _, _ in self.below(folder):
                go_on()
                (self._root / name).unlink(missing_ok=True)
            shutil.rmtree(self._root / folder, onerror=lambda _, __, raised: _require_absent(raised[1]))

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each file below."""
        with self._translated(self._root / folder):
            for place, folders, names in os.walk(self._root / folder, onerror=_require_absent):
                if "lost+found" in folders:  # of the file system, and root's alone; no name of ours has a "+"
                    folders.remove("lost+found")
                below = Path(place).relative_to(self._root)  # not of each file: it takes longer than a look at one
                for name in names:
                    with suppress(FileNotFoundError):
                        status = Path(place, name).stat()
                        yield f"{below}/{name}", status.st_size, status.st_mtime_ns // 1_000_000
            self._require_root()  # afterwards: what is not there may have been unmounted meanwhile

    def discard_unfinished(self, older_than_s: float) -> int:
        """See `Storage.discard_unfinished`."""
        limit_ms = (time.time() - older_than_s) * 1000
        old = [name for name, _, modified_ms in self.below(INCOMING) if modified_ms < limit_ms]
        raised: EmbedqError | None = None
        for name in old:
            try:
                self.delete(name)
            except EmbedqError as error:  # the others go all the same
                raised = error
        if raised is not None:
            raise raised
        return len(old)

    @contextmanager
    def _existing(self, path: Path) -> Iterator[None]:
        """As `_translated`; raises `NotStored` where `path` is not there, but the root is."""
        with self._translated(path):
            try:
                yield
            except _ABSENT:
                self._require_root()
                raise NotStored("This object is not in the storage.") from None

    @contextmanager
    def _translated(self, path: Path) -> Iterator[None]:
        with translated(STORAGE):
            try:
                yield
            except PermissionError as error:
                raise self._denied(path, error) from error

    def _require_root(self) -> None:
        if not (self._root / INCOMING).is_dir():  # an unmounted disk leaves an empty folder behind
            raise StorageUnavailable(
                "The storage folder (EMBEDQ_STORAGE_URL) is not there; is its disk mounted? All roles share one.",
                retry_after_s=10,
            )

    def _denied(self, path: Path, error: OSError) -> EmbedqError:
        """Who has what on the way from the root to `path` that is denied to this user."""
        with suppress(PermissionError):  # not even the root can be looked at
            for place in reversed([path, *path.parents][: len(path.relative_to(self._root).parts) + 1]):
                if not place.exists() or os.access(place, os.R_OK | (os.W_OK | os.X_OK if place.is_dir() else 0)):
                    continue
                its = place.stat()
                return StorageUnavailable(
                    f"{STORAGE} cannot be used: Permission denied. Its folder or file "
                    f"'{place.relative_to(self._root)}' is user {its.st_uid}'s and group {its.st_gid}'s "
                    f"(mode {its.st_mode & 0o7777:04o}), this role runs as user {os.geteuid()}. Run all roles as one "
                    "user, or share it by a group that all are in: chgrp -R GROUP and chmod -R g+rwXs. "
                    "Nothing was stored.",
                    retry_after_s=_RETRY_S[STORAGE],
                )
        return _refused(error, STORAGE)


class _FileWriter:
    """See `tasks.storage.storage.Writer`."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Appends."""
        try:  # not `translated`: lines come one by one, and making its context takes longer than most writes
            self._file.write(data)
        except OSError as error:
            raise _refused(error, STORAGE) from error
        self.size_bytes += len(data)


def _require_absent(error: BaseException) -> None:
    """What is not there may be left out. Anything else must not count as empty."""
    if not isinstance(error, _ABSENT):
        raise error


def _make_folder(path: Path, shared_rights: int) -> bool:
    """False: it is there, and may not be on the disk yet: its maker syncs it. A loss of power now may take both."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        return False
    _allow(path, 0o700, shared_rights)
    return True


def _allow(path: Path, own_rights: int, shared_rights: int) -> None:
    # Afterwards, as the umask takes from what a file or folder is made with. A file system may have no modes.
    if shared_rights:
        with suppress(OSError):
            path.chmod(own_rights | shared_rights)


def _shared_rights(folder: Path, needs: int = 0o020) -> int:
    """Of the group of a folder, with its set-group-ID bit, if it may do as much as `needs`; else none."""
    mode = folder.stat().st_mode
    return mode & 0o2070 if mode & needs == needs else 0


def _sync_folder(folder: Path) -> None:
    # Without it a loss of power may undo the rename, although the file itself is on the disk.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


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
        return DiskFull(f"{place} is full. Nothing was stored.", retry_after_s=60)
    reason = os.strerror(error.errno) if error.errno else "unknown reason"
    return StorageUnavailable(f"{place} cannot be used: {reason}. Nothing was stored.", retry_after_s=_RETRY_S[place])

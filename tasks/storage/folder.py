"""Storage in a folder of this machine or of a network file system: written beside, fsynced, then renamed."""

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar
from urllib.parse import unquote, urlsplit

from tasks.errors import EmbedqError, NotStored, StorageUnavailable
from tasks.storage.writer import STORAGE, Writer, translated

T = TypeVar("T")

INCOMING = ".incoming"
"""Folder of what is being written. Names of objects do not begin with a dot, so it is out of their reach. It is
made once: where it is missing later, this is not the storage that was opened."""

_NO_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""What a file system without hard links says."""
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

    @classmethod
    def open(cls, root: Path) -> Self:
        """The folder, created with mode 0700 if need be."""
        made = cls(root)
        made.make()
        return made

    def make(self) -> None:
        """Creates the folder, if it is not there."""
        with translated(STORAGE):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._root / INCOMING).mkdir(mode=0o700, exist_ok=True)

    def reporting(self, moved: Callable[[], None]) -> Self:  # noqa: ARG002 - nothing is left to send at the end
        """See `Storage.reporting`."""
        return self

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """See `Storage.writing`."""
        unfinished = self._root / INCOMING / secrets.token_hex(16)
        with translated(STORAGE):
            file = self._create(unfinished)
        try:
            yield Writer(file)
            with translated(STORAGE):
                _finish(file)
                self._place(name, unfinished.replace)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        finally:
            with suppress(OSError):  # what could not be flushed has been reported by write or fsync already
                file.close()

    def create(self, name: str, data: bytes) -> bool:
        """See `Storage.create`: a second name of a finished file, which no file system gives twice."""
        unfinished = self._root / INCOMING / secrets.token_hex(16)
        with translated(STORAGE):
            try:
                with self._create(unfinished) as file:
                    file.write(data)
                    _finish(file)
                return self._place(name, lambda target: _link(unfinished, target))
            finally:
                with suppress(OSError):
                    unfinished.unlink()

    def _create(self, unfinished: Path) -> BinaryIO:
        # Its folder is never made anew: what is written below the mount point of an unmounted disk is lost to all.
        return os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", _BUFFER_BYTES)

    def _place(self, name: str, place: Callable[[Path], T]) -> T:
        """What `place` says, which gives the object its name; its folder is made where it is missing."""
        target = self._root / name
        for failed in range(_RENAME_TRIES):
            try:
                if failed:
                    self._make_folders(target)
                placed = place(target)
            except FileNotFoundError:
                continue  # its folder was never made, or somebody has deleted the empty one in between
            _sync_folder(target.parent)
            return placed
        raise FileNotFoundError(errno.ENOENT, "a folder of the storage is deleted again and again")

    def _make_folders(self, target: Path) -> None:
        for folder in reversed(target.relative_to(self._root).parents[:-1]):
            path = self._root / folder
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                _sync_folder(path.parent)

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        with self._existing(), (self._root / name).open("rb") as file:
            file.seek(first)
            return file.read(-1 if size is None else size)

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        with self._existing():
            return (self._root / name).stat().st_size

    def chunks(self, name: str, first: int, size: int | None, chunk_bytes: int) -> Iterator[bytes]:
        """See `Storage.chunks`."""
        with self._existing():
            file = (self._root / name).open("rb", buffering=0)
        with file:
            file.seek(first)
            left = float("inf") if size is None else size
            while left > 0:
                with self._existing():
                    data = file.read(int(min(chunk_bytes, left)))
                if not data:
                    return
                left -= len(data)
                yield data

    def delete(self, name: str) -> None:
        """Removes one file, and the folders of a batch that it leaves empty."""
        with suppress(NotStored), self._existing():
            (self._root / name).unlink()
            with suppress(OSError):  # not empty
                for folder in Path(name).parents[:-2]:
                    (self._root / folder).rmdir()

    def delete_below(self, folder: str) -> None:
        """Removes a folder with everything in it, also while others remove some of it."""

        def failed(_: object, __: str, raised: tuple[Any, BaseException, Any]) -> None:
            if not isinstance(raised[1], _ABSENT):
                raise raised[1]

        with translated(STORAGE):
            shutil.rmtree(self._root / folder, onerror=failed)
            self._require_root()

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each file below."""
        self._require_root()
        with translated(STORAGE):
            for place, _, names in os.walk(self._root / folder):
                below = Path(place).relative_to(self._root)  # not of each file: it takes longer than a look at one
                for name in names:
                    with suppress(FileNotFoundError):
                        status = Path(place, name).stat()
                        yield f"{below}/{name}", status.st_size, status.st_mtime_ns // 1_000_000

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
    def _existing(self) -> Iterator[None]:
        with translated(STORAGE):
            try:
                yield
            except _ABSENT:
                self._require_root()
                raise NotStored("This object is not in the storage.") from None

    def _require_root(self) -> None:
        if not (self._root / INCOMING).is_dir():  # an unmounted disk leaves an empty folder behind
            raise StorageUnavailable(
                "The storage folder (EMBEDQ_STORAGE_URL) is not there; is its disk mounted? All roles share one.",
                retry_after_s=10,
            )


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _link(unfinished: Path, target: Path) -> bool:
    try:
        os.link(unfinished, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise StorageUnavailable(
                "The file system of the storage (EMBEDQ_STORAGE_URL) has no hard links, and datasets need them. "
                "Use another one, or a bucket.",
                retry_after_s=60,
            ) from error
        raise
    return True


def _sync_folder(folder: Path) -> None:
    # Without it a loss of power may undo the rename, although the file itself is on the disk.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

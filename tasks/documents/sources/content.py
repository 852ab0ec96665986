"""The bytes of one file wherever it is: an upload, a file on this machine, an object in a bucket."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from tasks.document_error import DocumentFailed
from tasks.documents.sources.remote_files import answered
from tasks.documents.sources.roots import is_within
from tasks.errors import NotStored
from tasks.storage.storage import Storage

PIECE_BYTES = 256 * 1024


class Content(Protocol):
    """One file, as it was when it was opened.

    Attributes:
        name: no other file of any source has it.
        version: differs when the bytes differ; positions within a file hold for one version.
    """

    name: str
    size_bytes: int
    version: str

    def read(self, first: int, size: int) -> bytes:
        """Bytes `first` to `first + size`; fewer where the file ends before.

        Raises:
            DocumentFailed: it is gone, unreadable, or no longer what was opened.
            StorageUnavailable: it does not answer now.
        """


class StoredContent:
    """An upload. A stored object never changes."""

    version = ""

    def __init__(self, storage: Storage, name: str, size_bytes: int) -> None:
        self._storage = storage
        self.name = name
        self.size_bytes = size_bytes

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        try:
            return self._storage.read(self.name, first, size)
        except NotStored:
            raise gone() from None


class LocalContent:
    """A regular file below one of the roots; a link counts as what it leads to."""

    def __init__(self, path: str, real_roots: Sequence[str]) -> None:
        self.name = path
        self._real_roots = real_roots
        descriptor = self._open()
        try:
            self.size_bytes, self.version = _state(descriptor)
        finally:
            os.close(descriptor)

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        descriptor = self._open()
        try:
            self._require_unchanged(descriptor)
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                file.seek(first)
                data = _read_all(file, size)
            # Checked again after reading: half of one version and half of another would be a document that never was.
            self._require_unchanged(descriptor)
        except OSError as error:
            raise failed_to_read(error) from None
        finally:
            os.close(descriptor)
        return data

    def _open(self) -> int:
        try:
            real = os.path.realpath(self.name, strict=True)
            if not any(is_within(real, root) for root in self._real_roots):
                raise outside()
            # Without O_NONBLOCK, opening a pipe without a writer waits for ever.
            descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise failed_to_read(error) from None
        # A folder on the path may have become a link between the check and the opening.
        moved = True
        with suppress(OSError):
            moved = os.path.realpath(self.name) != real
        if moved or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise changed() if moved else DocumentFailed("unreadable", "This is not a regular file.", "reading")
        return descriptor

    def _require_unchanged(self, descriptor: int) -> None:
        if _state(descriptor) != (self.size_bytes, self.version):
            raise changed()


class RemoteContent:
    """An object behind one of fsspec's drivers, which is that of `scheme`."""

    def __init__(self, files: Any, scheme: str, path: str) -> None:
        self.name = f"{scheme}://{path}"
        self._files = files
        self._path = path
        info = answered(lambda: files.info(path))
        if info.get("type") != "file":
            raise gone()
        self.size_bytes = int(info.get("size") or 0)
        self.version = remote_version(info)

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        end = min(first + size, self.size_bytes)
        if first >= end:
            return b""
        data = answered(lambda: self._files.cat_file(self._path, start=first, end=end))
        if len(data) != end - first:
            raise changed()
        return bytes(data)


def remote_version(info: Any) -> str:
    """The version of an object: its tag or its time, whichever the driver has, and its size."""
    for name in ("ETag", "etag", "md5Hash", "version_id", "LastModified", "last_modified", "mtime", "created"):
        if info.get(name):
            return f"{info.get('size')} {info[name]}"
    return f"{info.get('size')}"


def pieces(content: Content, first: int, progress: Callable[[], None]) -> Iterator[bytes]:
    """The bytes from `first` to the end."""
    while first < content.size_bytes:
        progress()
        piece = content.read(first, PIECE_BYTES)
        if not piece:
            raise changed()
        yield piece
        first += len(piece)


def gone() -> DocumentFailed:
    """The error for a file that was deleted after it was listed."""
    return DocumentFailed("gone", "The file is no longer there.", "reading")


def changed() -> DocumentFailed:
    """The error for a file that is not the version that was listed."""
    message = "The file changed while it was being ingested. Run the ingestion again when it no longer changes."
    return DocumentFailed("changed", message, "reading")


def outside() -> DocumentFailed:
    """The error for a file that may not be read."""
    message = "The file is outside of EMBEDQ_INGEST_ROOTS, perhaps behind a link. It was not read."
    return DocumentFailed("outside_roots", message, "reading")


def failed_to_read(error: OSError | ValueError) -> DocumentFailed:
    """An error of the operating system as the error of a document."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return gone()
    reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it has no valid name"
    return DocumentFailed("unreadable", f"The file cannot be read on the server: {reason}.", "reading")


def _state(descriptor: int) -> tuple[int, str]:
    state = os.fstat(descriptor)
    return state.st_size, f"{state.st_size} {state.st_mtime_ns}"


def _read_all(file: Any, size: int) -> bytes:
    # One read gives at most 2 GiB, and less where a signal comes in between.
    parts = []
    while size > 0 and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

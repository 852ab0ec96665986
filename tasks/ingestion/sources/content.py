"""The bytes of one file wherever it is: an upload, a file on this machine, an object in a bucket."""

import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol, Self

from tasks.document_error import DocumentFailed
from tasks.errors import NotStored, StorageUnavailable
from tasks.ingestion.sources.allowed_paths import is_within
from tasks.storage.storage import Storage

_COPY_BYTES = 2**20


class Content(Protocol):
    """One file, as it was when it was opened; a context manager.

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it, if it is open."""
        return None  # noqa: RET501 - without a body it would be abstract


class StoredContent(Content):
    """An object of the storage. It never changes."""

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


class LocalContent(Content):
    """A regular file below one of the roots, opened once; a link counts as what it leads to."""

    def __init__(self, path: str, real_roots: Sequence[str]) -> None:
        self.name = path
        real = os.path.realpath(path)
        if not any(is_within(real, root) for root in real_roots):
            raise outside()
        # Without O_NONBLOCK, opening a pipe without a writer waits for ever.
        self.descriptor = open_real(real, os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self.descriptor).st_mode):
            os.close(self.descriptor)
            raise DocumentFailed("unreadable", "This is not a regular file.", "reading")
        self.size_bytes, self.version = self._state()

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        self.require_unchanged()
        try:
            parts = []
            while size > 0 and (part := os.pread(self.descriptor, min(size, 2**30), first)):
                parts.append(part)
                first, size = first + len(part), size - len(part)
        except OSError as error:
            raise failed_to_read(error) from None
        # Checked again after reading: half of one version and half of another would be a document that never was.
        self.require_unchanged()
        return b"".join(parts)

    def require_unchanged(self) -> None:
        """Raises `DocumentFailed` if somebody has written to it."""
        if self._state() != (self.size_bytes, self.version):
            raise changed()

    def _state(self) -> tuple[int, str]:
        state = os.fstat(self.descriptor)
        return state.st_size, f"{state.st_size} {state.st_mtime_ns}"

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)


def open_real(real: str, flags: int) -> int:
    """A file descriptor of a path that has no links, which is also true once it is open. Raises `DocumentFailed`."""
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError as error:
        raise failed_to_read(error) from None
    # A folder on the path may have become a link between check and opening.
    if os.readlink(path_of(descriptor)) != real:  # noqa: PTH115 - the name need not be UTF-8
        os.close(descriptor)
        raise changed()
    return descriptor


@contextmanager
def open_path(content: Content, progress: Callable[[], None]) -> Iterator[str]:
    """A path by which the sandbox opens the content, if only as long as it is asked for; raises like `Content.read`.

    A file of this machine is opened as it is. Any other is copied first; the last copy is kept for the next pages.
    """
    if isinstance(content, LocalContent):
        content.require_unchanged()
        yield path_of(content.descriptor)
        content.require_unchanged()
        return
    key = (content.name, content.version, content.size_bytes)
    if getattr(_last, "key", None) != key:
        if hasattr(_last, "copy"):
            _last.copy.close()
        _last.key, _last.copy = None, _copied(content, progress)
        _last.key = key
    yield path_of(_last.copy.fileno())


def path_of(descriptor: int) -> str:
    """By it another process of this user opens what this one has open, whatever has become of its name."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


# Of each thread: a number by which one reads must not become that of another's file.
_last = threading.local()


def _copied(content: Content, progress: Callable[[], None]) -> IO[bytes]:
    """A file that has no name: nothing is left of it when this process is killed."""
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - kept
    try:
        for first in range(0, content.size_bytes, _COPY_BYTES):
            progress()
            copy.write(content.read(first, _COPY_BYTES))
        copy.flush()
    except OSError:
        copy.close()
        message = "The documents worker has no room for a copy of the file in its folder for temporary files (TMPDIR)."
        raise StorageUnavailable(message, retry_after_s=60) from None
    return copy


def gone() -> DocumentFailed:
    """The error for a file that was deleted after it was listed."""
    return DocumentFailed("gone", "The file is no longer there.", "reading")


def not_sent() -> DocumentFailed:
    """The error for a file of which the request has only the digest, where the dataset does not have it."""
    message = (
        "Only its SHA-256 came, and under this id the sink does not have this content, processed like this. Send it."
    )
    return DocumentFailed("not_sent", message, "reading")


def changed() -> DocumentFailed:
    """The error for a file that is not the version that was listed."""
    message = "The file changed while it was being ingested. Run the ingestion again when it no longer changes."
    return DocumentFailed("changed", message, "reading")


def outside() -> DocumentFailed:
    """The error for a file that may not be read."""
    message = "The file is outside of EMBEDQ_INGEST_ROOTS, perhaps behind a link. It was not read."
    return DocumentFailed("outside_roots", message, "reading")


def failed_to_read(error: OSError) -> DocumentFailed:
    """An error of the operating system as the error of a document."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return gone()
    message = f"The file cannot be read on the server: {os.strerror(error.errno or 0)}."
    return DocumentFailed("unreadable", message, "reading")

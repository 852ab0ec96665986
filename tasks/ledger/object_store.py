"""Storage in a bucket, through fsspec: spooled to a temporary file here, then sent as one object."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any, Self

import fsspec

from tasks.errors import EmbedqError, NotStored, StorageUnavailable

_SCHEMES = {"s3": "pip install s3fs", "memory": ""}


class ObjectStore:
    """Objects below a prefix of a file system that makes an object visible when it is complete."""

    def __init__(self, files: Any, prefix: str) -> None:
        self._files = files
        self._prefix = prefix.rstrip("/")

    @classmethod
    def open(cls, url: str) -> Self:
        """The bucket and prefix of a URL; nothing is sent yet. Credentials come from the driver's own environment."""
        scheme = url.partition("://")[0]
        if scheme not in _SCHEMES:
            raise StorageUnavailable("EMBEDQ_STORAGE_URL must start with file:// or s3://.")
        try:
            # A cached listing would hide what other processes have written.
            files, prefix = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError:
            raise StorageUnavailable(f"EMBEDQ_STORAGE_URL needs a driver: {_SCHEMES[scheme]}") from None
        return cls(files, prefix)

    @contextmanager
    def writing(self, name: str) -> Iterator["SpoolWriter"]:
        """See `Storage.writing`."""
        # Not fsspec's own writer: left by an exception it completes the upload with what it has.
        with tempfile.NamedTemporaryFile() as spool:
            writer = SpoolWriter(spool)
            yield writer
            with _translated():
                spool.flush()
                self._files.put_file(spool.name, self._path(name))

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        if size == 0:
            return b""  # a range without a byte cannot be asked for
        end = None if size is None else first + size
        with _translated():
            found: bytes = self._files.cat_file(self._path(name), start=first or None, end=end)
        return found

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        with _translated():
            return int(self._files.info(self._path(name))["size"])

    def chunks(self, name: str, first: int, size: int | None, chunk_bytes: int) -> Iterator[bytes]:
        """See `Storage.chunks`."""
        end = self.size_bytes(name) if size is None else min(first + size, self.size_bytes(name))
        for start in range(first, end, chunk_bytes):
            yield self.read(name, start, min(chunk_bytes, end - start))

    def delete(self, name: str) -> None:
        """Removes one object."""
        with suppress(NotStored), _translated():
            self._files.rm_file(self._path(name))

    def delete_below(self, folder: str) -> None:
        """Removes all objects below."""
        with suppress(NotStored), _translated():
            self._files.rm(self._path(folder), recursive=True)

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each object below."""
        with _translated():
            found = self._files.find(self._path(folder), detail=True)
        for path, entry in found.items():
            yield path[len(self._prefix) + 1 :], int(entry["size"]), self._modified_ms(path, entry)

    def discard_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002 - the other place has something to discard
        """Nothing: the temporary file of a dead process is gone with it, and buckets expire half uploads themselves."""
        return 0

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _modified_ms(self, path: str, entry: dict[str, Any]) -> int:
        modified = entry.get("LastModified")
        if not isinstance(modified, datetime):
            with _translated():
                modified = self._files.modified(path)
        return int(modified.timestamp() * 1000)


class SpoolWriter:
    """Appends to a temporary file."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """See `Writer.write`."""
        with _translated():
            self._spool.write(data)
        self.size_bytes += len(data)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except EmbedqError:
        raise
    except FileNotFoundError:
        raise NotStored("This object is not in the storage.") from None
    except Exception as error:  # the edge to drivers, which raise whatever their own libraries raise
        raise StorageUnavailable(
            "The storage (EMBEDQ_STORAGE_URL) does not answer or refuses. Nothing was stored.", retry_after_s=10
        ) from error

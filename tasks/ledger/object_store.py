"""Storage in a bucket, through fsspec: spooled to a temporary file here, then sent as one object."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Self

import fsspec

from tasks.errors import NotStored, StorageUnavailable
from tasks.ledger.refusals import AlreadyThere, BehindTheEnd, translated
from tasks.ledger.spool import Spool, spooling
from tasks.ledger.upload import upload

_INSTALL = "pip install s3fs"
_PROBE = "conditional-writes"
"""An empty object that is created twice, to see whether the second time is refused."""
_CONNECT_S, _READ_S, _ATTEMPTS = 2, 6, 2
"""Of one request to a bucket. Callers wait for it, and the stepper does nothing else meanwhile: a service that has
stopped answering fails them in 13 s instead of the driver's minutes."""


class ObjectStore:
    """Objects below a prefix of a file system that makes an object visible when it is complete."""

    def __init__(self, files: Any, prefix: str, moved: Callable[[], None] = lambda: None) -> None:
        self._files = files
        self._prefix = prefix.rstrip("/")
        self._moved = moved
        self._conditional = False
        self._creating = threading.Lock()

    @classmethod
    def open(cls, url: str) -> Self:
        """The bucket and prefix of a URL; nothing is sent yet. Credentials come from the driver's own environment."""
        scheme = url.partition("://")[0]
        if scheme not in {"s3", "memory"}:
            raise StorageUnavailable("EMBEDQ_STORAGE_URL must start with file:// or s3://.")
        if scheme == "s3" and not url.removeprefix("s3://").strip("/"):
            raise StorageUnavailable("EMBEDQ_STORAGE_URL names no bucket: s3://bucket/prefix.")
        try:
            files, prefix = fsspec.core.url_to_fs(url, **(_s3_options() if scheme == "s3" else {}))
        except ImportError:
            raise StorageUnavailable(f"EMBEDQ_STORAGE_URL needs a driver: {_INSTALL}") from None
        if scheme == "s3":
            files.retries = 1  # of its own, around those of the client below
        return cls(files, prefix)

    def telling(self, moved: Callable[[], None]) -> "ObjectStore":
        """See `Storage.telling`."""
        return ObjectStore(self._files, self._prefix, moved)

    @contextmanager
    def writing(self, name: str) -> Iterator[Spool]:
        """See `Storage.writing`."""
        # Not fsspec's own writer: left by an exception it completes the upload with what it has.
        with spooling() as spool:
            yield spool
            path = spool.finish()
            with translated():
                upload(self._files, path, self._path(name), spool.size_bytes, self._moved)

    def create(self, name: str, data: bytes) -> bool:
        """See `Storage.create`: a conditional write (`If-None-Match: *`)."""
        with self._creating:
            if not self._conditional:  # or an older service overwrites what is there, and says that all is well
                self._create(_PROBE, b"")
                if self._create(_PROBE, b""):
                    raise StorageUnavailable(
                        "The bucket of EMBEDQ_STORAGE_URL ignores conditional writes (If-None-Match), and datasets "
                        "need them. Use another one, or a folder.",
                        retry_after_s=60,
                    )
                self._conditional = True
        return self._create(name, data)

    def _create(self, name: str, data: bytes) -> bool:
        try:
            with translated():
                self._files.pipe_file(self._path(name), data, mode="create")
        except AlreadyThere:
            return False
        return True

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        if size == 0:
            return b""  # a range without a byte cannot be asked for
        end = None if size is None else first + size
        with suppress(BehindTheEnd), translated():
            found: bytes = self._files.cat_file(self._path(name), start=first or None, end=end)
            return found
        return b""

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        with translated():
            found = self._files.info(self._path(name))
        if found["type"] != "file":  # some object has a longer name
            raise NotStored("This object is not in the storage.")
        return int(found["size"])

    def chunks(self, name: str, first: int, size: int | None, chunk_bytes: int) -> Iterator[bytes]:
        """See `Storage.chunks`."""
        whole = self.size_bytes(name)
        end = whole if size is None else min(first + size, whole)
        for start in range(first, end, chunk_bytes):
            yield self.read(name, start, min(chunk_bytes, end - start))

    def delete(self, name: str) -> None:
        """Removes one object."""
        with suppress(NotStored), translated():
            self._files.rm_file(self._path(name))

    def delete_below(self, folder: str) -> None:
        """Removes all objects below."""
        doomed = {name for name, _, _ in self.below(folder)}
        if not doomed:
            return
        with suppress(NotStored), translated():
            self._files.rm(self._path(folder), recursive=True)
        # The driver reports what it removed and says nothing of what it may not remove.
        if not doomed.isdisjoint(name for name, _, _ in self.below(folder)):
            raise StorageUnavailable("The storage (EMBEDQ_STORAGE_URL) denies deleting.", retry_after_s=10)

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each object below."""
        with translated():
            found = self._files.find(self._path(folder), detail=True)
        for path, entry in found.items():
            yield path[len(self._prefix) + 1 :], int(entry["size"]), self._modified_ms(path, entry)

    def discard_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002 - the other place has something to discard
        """Nothing: a spool has no name that could outlive its process, and a bucket's own rules end half uploads."""
        return 0

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _modified_ms(self, path: str, entry: dict[str, Any]) -> int:
        modified = entry.get("LastModified")
        if not isinstance(modified, datetime):
            with translated():
                modified = self._files.modified(path)
        return int(modified.timestamp() * 1000)


def _s3_options() -> dict[str, Any]:
    return {
        # A cached listing would hide what other processes have written; a shared instance would keep the
        # credentials of whoever opened it first.
        "use_listings_cache": False,
        "skip_instance_cache": True,
        "config_kwargs": {
            "connect_timeout": _CONNECT_S,
            "read_timeout": _READ_S,
            "retries": {"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        },
    }

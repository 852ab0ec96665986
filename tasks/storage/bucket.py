"""Storage in a bucket, through fsspec: spooled to a temporary file here, then sent as one object."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

# Not obstore: sources read buckets of other services through fsspec, so there would be two drivers, with two sets of
# credentials and of errors.
import fsspec
from fsspec.asyn import sync
from fsspec.callbacks import Callback

from tasks.errors import DiskFull, EmbedqError, NotStored, StorageUnavailable
from tasks.storage.writer import STORAGE, Spool, spooling

_INSTALL = "pip install s3fs"
_PROBE = "conditional-writes"
"""An empty object that is created twice, to see whether the second time is refused."""
_CONNECT_S, _ATTEMPTS = 2, 2


@dataclass(frozen=True, slots=True)
class BucketLimits:
    """How long a bucket may be silent, and in what pieces a large object is sent.

    Attributes:
        read_s: of one attempt of a request. Callers wait for it, and the stepper does nothing else meanwhile: a service
            that has stopped answering fails them in 13 s instead of the driver's minutes.
        piece_bytes: of a large object on its way. The driver holds all that is under way in memory, by default 500 MB.
        stalled_s: an upload of which no piece arrives for longer than this and the time of the slowest link has
            stopped: the driver waits for ever for leave to send, and for a peer that takes no bytes.
        slowest_bytes_per_s: of that link.
    """

    read_s: float = 6
    piece_bytes: int = 8 * 2**20
    stalled_s: float = 12
    slowest_bytes_per_s: int = 256 * 1024


class ObjectStore:
    """Objects below a prefix of a file system that makes an object visible when it is complete."""

    def __init__(
        self,
        files: Any,
        prefix: str,
        moved: Callable[[], None] = lambda: None,
        limits: BucketLimits = BucketLimits(),
    ) -> None:
        self._files = files
        self._prefix = prefix.rstrip("/")
        self._moved = moved
        self._limits = limits
        self._conditional = False
        self._creating = threading.Lock()

    @classmethod
    def open(cls, url: str, limits: BucketLimits = BucketLimits()) -> Self:
        """The bucket and prefix of a URL; nothing is sent yet. Credentials come from the driver's own environment."""
        scheme = url.partition("://")[0]
        if scheme not in {"s3", "memory"}:
            raise StorageUnavailable("EMBEDQ_STORAGE_URL must start with file:// or s3://.")
        if scheme == "s3" and not url.removeprefix("s3://").strip("/"):
            raise StorageUnavailable("EMBEDQ_STORAGE_URL names no bucket: s3://bucket/prefix.")
        try:
            files, prefix = fsspec.core.url_to_fs(url, **(_s3_options(limits) if scheme == "s3" else {}))
        except ImportError:
            raise StorageUnavailable(f"EMBEDQ_STORAGE_URL needs a driver: {_INSTALL}") from None
        if scheme == "s3":
            files.retries = 1  # of its own, around those of the client below
        return cls(files, prefix, limits=limits)

    def reporting(self, moved: Callable[[], None]) -> "ObjectStore":
        """See `Storage.reporting`."""
        return ObjectStore(self._files, self._prefix, moved, self._limits)

    @contextmanager
    def writing(self, name: str) -> Iterator[Spool]:
        """See `Storage.writing`."""
        # Not fsspec's own writer: left by an exception it completes the upload with what it has.
        with spooling() as spool:
            yield spool
            path = spool.finish()
            with _translated():
                upload(self._files, path, self._path(name), spool.size_bytes, self._moved, limits=self._limits)

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
            with _translated():
                self._files.pipe_file(self._path(name), data, mode="create")
        except _AlreadyThere:
            return False
        return True

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        if size == 0:
            return b""  # a range without a byte cannot be asked for
        end = None if size is None else first + size
        with suppress(_BehindTheEnd), _translated():
            data: bytes = self._files.cat_file(self._path(name), start=first or None, end=end)
            return data
        return b""

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        with _translated():
            entry = self._files.info(self._path(name))
        if entry["type"] != "file":  # some object has a longer name
            raise NotStored("This object is not in the storage.")
        return int(entry["size"])

    def chunks(self, name: str, first: int, size: int | None, chunk_bytes: int) -> Iterator[bytes]:
        """See `Storage.chunks`."""
        whole = self.size_bytes(name)
        end = whole if size is None else min(first + size, whole)
        for start in range(first, end, chunk_bytes):
            yield self.read(name, start, min(chunk_bytes, end - start))

    def delete(self, name: str) -> None:
        """Removes one object."""
        with suppress(NotStored), _translated():
            self._files.rm_file(self._path(name))

    def delete_below(self, folder: str) -> None:
        """Removes all objects below."""
        doomed = {name for name, _, _ in self.below(folder)}
        if not doomed:
            return
        with suppress(NotStored), _translated():
            self._files.rm(self._path(folder), recursive=True)
        # The driver reports what it removed and says nothing of what it may not remove.
        if not doomed.isdisjoint(name for name, _, _ in self.below(folder)):
            raise StorageUnavailable(f"{STORAGE} denies deleting.", retry_after_s=10)

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each object below."""
        with _translated():
            entries = self._files.find(self._path(folder), detail=True)
        for path, entry in entries.items():
            yield path[len(self._prefix) + 1 :], int(entry["size"]), self._modified_ms(path, entry)

    def discard_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002 - the other place has something to discard
        """Nothing: a spool has no name that could outlive its process, and a bucket's own rules end half uploads."""
        return 0

    def _path(self, name: str) -> str:
        return f"{self._prefix}/{name}"

    def _modified_ms(self, path: str, entry: dict[str, Any]) -> int:
        modified = entry.get("LastModified")
        if not isinstance(modified, datetime):
            with _translated():
                modified = self._files.modified(path)
        return int(modified.timestamp() * 1000)


def _s3_options(limits: BucketLimits) -> dict[str, Any]:
    return {
        # A cached listing would hide what other processes have written; a shared instance would keep the
        # credentials of whoever opened it first.
        "use_listings_cache": False,
        "skip_instance_cache": True,
        "config_kwargs": {
            "connect_timeout": _CONNECT_S,
            "read_timeout": limits.read_s,
            "retries": {"total_max_attempts": _ATTEMPTS, "mode": "standard"},
        },
    }


# Sending one object to a bucket: it may take as long as it moves, and says so piece by piece.

_PIECES_AT_ONCE = 2
"""Of a large object on its way."""


def upload(
    files: Any,
    path: str,
    target: str,
    size_bytes: int,
    moved: Callable[[], None],
    *,
    limits: BucketLimits = BucketLimits(),
) -> None:
    """Sends the file at `path`; `moved` is called after each piece, in a thread of the driver's, and must not raise.

    Raises what the driver raises, and `TimeoutError` when nothing has moved for as long as the slowest link takes for
    the pieces under way.
    """
    pieces = Callback(hooks={"moved": lambda *_, **__: moved()})
    if not files.async_impl:
        files.put_file(path, target, callback=pieces)
        return
    piece_bytes = max(limits.piece_bytes, size_bytes // 5_000)  # a bucket takes 10,000 pieces of one object
    under_way = min(size_bytes, _PIECES_AT_ONCE * piece_bytes)
    patience_s = limits.stalled_s + under_way / limits.slowest_bytes_per_s

    async def watched() -> None:
        options = {"chunksize": piece_bytes, "max_concurrency": _PIECES_AT_ONCE}
        # The driver's own `timeout` is one of the whole: of a large object it would outlast a peer that has died.
        sending = asyncio.ensure_future(files._put_file(path, target, callback=pieces, **options))  # noqa: SLF001
        while not sending.done():
            before = pieces.value
            await asyncio.wait({sending}, timeout=patience_s)
            if not sending.done() and pieces.value == before:
                sending.cancel()
                raise TimeoutError
        await sending

    sync(files.loop, watched)


# What a bucket's driver raises, as our errors: which of its many reasons it was, and nothing that it says itself.

_FULL = frozenset({"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "QuotaExceeded", "InsufficientStorage"})
_THERE = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "FileExistsError"})
_REASONS = {
    "has no such bucket": {"NoSuchBucket", "InvalidBucketName", "ParamValidationError"},
    "does not know the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)": {
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
        "InvalidClientTokenId",
    },
    "needs credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), of which there are none": {
        "NoCredentialsError",
        "PartialCredentialsError",
    },
    "denies access": {"AccessDenied", "AllAccessDisabled", "403", "Forbidden", "PermissionError"},
    "is in another region (AWS_DEFAULT_REGION)": {
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "301",
    },
    "cannot be reached in time (AWS_ENDPOINT_URL)": {
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
        "ConnectionClosedError",
        "FSTimeoutError",
        "TimeoutError",
        "ConnectionRefusedError",
    },
}
_REASON_OF = {code: reason for reason, codes in _REASONS.items() for code in codes}


class _BehindTheEnd(Exception):
    """A range that begins where the object has ended."""


class _AlreadyThere(Exception):
    """A name that was to be new has an object, or somebody else is giving it one."""


@contextmanager
def _translated() -> Iterator[None]:
    """Raises what the driver raises as one of ours.

    Raises:
        NotStored: there is no such object, in a bucket that is there.
        _BehindTheEnd: there is, and it is shorter.
        _AlreadyThere: there is, and there should not be.
        DiskFull: the bucket takes no more.
        StorageUnavailable: anything else; the message names the setting to look at.
    """
    try:
        yield
    except EmbedqError:
        raise
    except Exception as error:  # the edge to drivers, which raise whatever their own libraries raise
        codes = _codes(error)
        if not codes.isdisjoint({"InvalidRange", "416"}):
            raise _BehindTheEnd from error
        if not codes.isdisjoint(_THERE):
            raise _AlreadyThere from error
        if not codes.isdisjoint(_FULL):
            raise DiskFull(f"{STORAGE} is full. Nothing was stored.", retry_after_s=60) from error
        reason = next((_REASON_OF[code] for code in codes if code in _REASON_OF), "")
        if isinstance(error, FileNotFoundError) and not reason:
            raise NotStored("This object is not in the storage.") from None
        raise StorageUnavailable(
            f"{STORAGE} {reason or 'does not answer or refuses'}. Nothing was stored.",
            retry_after_s=10,
        ) from error


def _codes(error: BaseException) -> set[str]:
    """Of an error and what it came from: the service's own codes and the names of the driver's classes."""
    codes: set[str] = set()
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            codes.add(str(response.get("Error", {}).get("Code", "")))
        codes.add(type(cause).__name__)
        cause = cause.__cause__
    return codes

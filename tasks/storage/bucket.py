"""Storage in a bucket of S3, Google Cloud Storage or Azure: sent in pieces, read in ranges."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tasks.errors import DiskFull, EmbedqError, NotStored, StorageUnavailable
from tasks.pieces import pieces

try:
    import obstore
    from obstore import store as stores
except ImportError:
    _MISSING = 'EMBEDQ_STORAGE_URL needs a driver: pip install "embedq[buckets]"'
else:
    _MISSING = ""

_SMALL_BYTES = 2**20
_PIECE_BYTES = 8 * 2**20
"""Of a large object on its way. A bucket takes 10,000 of them; three are in memory."""
_PIECES_AT_ONCE = 2
_PAGE = 1000
"""Objects that one call lists, or deletes."""
_memory: dict[str, Any] = {}
"""Buckets for tests: `memory://name`."""


class Bucket:
    """Objects below a prefix.

    Args:
        store: what reads, and sends small objects.
        sending: the same place, for large objects. A piece may take longer than an answer: the driver's limit of a
            silent peer counts while it sends, too.
    """

    def __init__(self, store: Any, sending: Any, cloud: str) -> None:
        self.store = store
        self.sending = sending
        self.cloud = cloud

    @classmethod
    def open(cls, url: str, read_s: float = 6, piece_s: float = 76) -> Self:
        """The bucket and prefix of a URL; nothing is sent yet. Credentials come from the cloud's own environment.

        `read_s`: how long the bucket may be silent, in each of two attempts. Callers wait for it, and what drives jobs
        does nothing else meanwhile. `piece_s`: how long a piece may take; it is not sent twice.
        """
        cloud, _, place = url.partition("://")
        if cloud not in {"s3", "gs", "az", "memory"}:
            raise StorageUnavailable(
                "EMBEDQ_STORAGE_URL must be a folder, or start with file://, s3://, gs:// or az://."
            )
        if not place.strip("/"):
            raise StorageUnavailable(f"EMBEDQ_STORAGE_URL names no bucket: {cloud}://bucket/prefix.")
        if _MISSING:
            raise StorageUnavailable(_MISSING)
        if cloud == "memory":
            store = _memory.setdefault(url, stores.MemoryStore())
            return cls(store, store, cloud)
        with translated(cloud):
            reading = stores.from_url(url.rstrip("/"), **_options(cloud, read_timeout=timedelta(seconds=read_s)))
            sending = stores.from_url(url.rstrip("/"), **_options(cloud, timeout=timedelta(seconds=piece_s)))
        return cls(reading, sending, cloud)

    def make(self) -> None:
        """Nothing: whoever owns the cloud makes buckets."""

    @contextmanager
    def writing(self, name: str, moved: Callable[[], None]) -> Iterator["_ObjectWriter"]:
        """See `Storage.writing`. A bucket's own rules end what was sent of an object that is given up."""
        writer = _ObjectWriter(self, name, moved)
        yield writer
        writer.finish()

    def read(self, name: str, first: int, size: int | None) -> bytes:
        """See `Storage.read`."""
        part: Any = (
            ({"range": {"offset": first}} if first else {}) if size is None else {"range": (first, first + size)}
        )
        with suppress(_BehindTheEnd), translated(self.cloud):
            return b"" if size == 0 else bytes(obstore.get(self.store, name, options=part).bytes())
        return b""

    def size_bytes(self, name: str) -> int:
        """See `Storage.size_bytes`."""
        # Not HEAD: its answer has no body, which alone says whether the object is missing or the bucket.
        with suppress(_BehindTheEnd), translated(self.cloud):
            return obstore.get(self.store, name, options={"range": (0, 1)}).meta["size"]
        return 0

    def delete(self, name: str) -> None:
        """Removes one object."""
        with suppress(NotStored), translated(self.cloud):
            obstore.delete(self.store, name)

    def delete_all(self, names: Iterable[str], go_on: Callable[[], object]) -> None:
        """See `Storage.delete_all`."""
        for some in pieces(names, _PAGE):
            go_on()
            try:
                with translated(self.cloud):
                    obstore.delete(self.store, some)
            except NotStored:  # one of them, and nobody knows which of the others are deleted
                for name in some:
                    go_on()
                    self.delete(name)

    def delete_below(self, folder: str, go_on: Callable[[], object]) -> None:
        """Removes all objects below, also while others remove some of them."""
        before: list[str] = []
        while names := [name for name, _, _ in self.below(folder)]:
            if names == before:
                raise StorageUnavailable("The storage (EMBEDQ_STORAGE_URL) denies deleting.", retry_after_s=10)
            before = names
            self.delete_all(names, go_on)

    def below(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """Name, size and time of writing (ms) of each object below."""
        with translated(self.cloud):
            for page in obstore.list(self.store, folder, chunk_size=_PAGE):
                for found in page:
                    yield found["path"], found["size"], int(found["last_modified"].timestamp() * 1000)

    def discard_unfinished(self, older_than_s: float) -> int:  # noqa: ARG002 - the other place has something to discard
        """Nothing: a bucket's own rules end half uploads."""
        return 0


class _ObjectWriter:
    """See `tasks.storage.storage.Writer`. `moved` is called whenever a part of the object has been taken."""

    def __init__(self, bucket: Bucket, name: str, moved: Callable[[], None]) -> None:
        self._bucket = bucket
        self._name = name
        self._moved = moved
        self._held = bytearray()
        self._large: Any = None
        self.size_bytes = 0

    def write(self, data: bytes) -> None:
        """Appends."""
        self._held += data
        self.size_bytes += len(data)
        if len(self._held) < _SMALL_BYTES:
            return
        with translated(self._bucket.cloud):
            self._large = self._large or obstore.open_writer(
                self._bucket.sending, self._name, buffer_size=_PIECE_BYTES, max_concurrency=_PIECES_AT_ONCE
            )
            self._large.write(self._held)
        self._held = bytearray()  # the driver has the other one
        self._moved()

    def finish(self) -> None:
        """Makes the object visible."""
        with translated(self._bucket.cloud):
            if self._large is None:
                obstore.put(self._bucket.store, self._name, bytes(self._held))
            else:
                self._large.write(self._held)
                self._large.close()
        self._moved()


def _options(cloud: str, **silent: timedelta) -> dict[str, Any]:
    client: dict[str, Any] = {"connect_timeout": "2s", "timeout": "10m", "allow_http": True, **silent}
    # This time ends attempts, not the wait: what has taken longer is not tried again.
    retries = {"max_retries": 1, "retry_timeout": timedelta(seconds=10)}
    options: dict[str, Any] = {"client_options": client, "retry_config": retries}
    if cloud == "s3" and (bundle := os.environ.get("AWS_CA_BUNDLE")):
        try:
            client["root_certificate"] = Path(bundle).read_bytes()
        except OSError:
            raise StorageUnavailable("The file of AWS_CA_BUNDLE cannot be read.", retry_after_s=60) from None
    if cloud == "s3" and os.environ.get("AWS_PROFILE"):
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 - the driver itself reads no profiles

        options["credential_provider"] = Boto3CredentialProvider()
    return options


# What the driver raises, as our errors: which of its many reasons it was, and nothing that it says itself.

_FULL = "StorageFull|QuotaExceeded|InsufficientStorage|status code: 507"
# The first that fits. Names of objects and buckets have neither capitals nor spaces.
_REASONS = {
    "has no such bucket": (
        "NoSuchBucket|InvalidBucketName|ContainerNotFound|ContainerBeingDeleted|InvalidResourceName|"
        "ValueError|URL error"
    ),
    # Where nothing is set, the machine is asked for its own role.
    "needs credentials ({0}), of which there are none": (
        r"//169\.254\.|//metadata\.google|Missing(Secret|Access|Account|Key|Token)|NoCredentials|ProfileNotFound"
    ),
    "does not know the credentials ({0})": (
        "InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|InvalidClientTokenId|AuthenticationFailed|"
        "InvalidAuthenticationInfo|InvalidAccessKey|(Open|Decode)Credentials|token request|status code: 401"
    ),
    "is in another region (AWS_DEFAULT_REGION)": (
        "PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|without LOCATION|status code: 301"
    ),
    "denies access": "AccessDenied|AllAccessDisabled|status code: 403",
    "shows a certificate that is not trusted here ({2})": "certificate|Certificate",
    "cannot be reached in time ({1})": "HTTP error",
}
_SETTINGS = {
    "s3": ("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "storage.googleapis.com", "SSL_CERT_FILE"),
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT",
        "SSL_CERT_FILE",
    ),
    "memory": ("", "", ""),
}
"""Of each cloud: its credentials, its address, the authorities that it is trusted by."""


class _BehindTheEnd(Exception):
    """A range that begins where the object has ended."""


@contextmanager
def translated(cloud: str) -> Iterator[None]:
    """Raises what the driver raises as one of ours.

    Raises:
        NotStored: there is no such object, in a bucket that is there.
        _BehindTheEnd: there is, and it is shorter.
        DiskFull: the bucket takes no more.
        StorageUnavailable: anything else; the message names the setting to look at.
    """
    try:
        yield
    except EmbedqError:
        raise
    except Exception as error:  # noqa: BLE001 - the edge to a driver, which raises `OSError`, `ValueError` and its own
        # Without the cause: it names addresses, and those of Azure may hold a signature.
        raise _translated(error, cloud) from None


def _translated(error: Exception, cloud: str) -> Exception:
    text = f"{type(error).__name__} {error}"
    if re.search("status code: 416|StartTooLarge", text):
        return _BehindTheEnd()
    if re.search(_FULL, text):
        return DiskFull("The storage (EMBEDQ_STORAGE_URL) is full. Nothing was stored.", retry_after_s=60)
    reason = next((reason for reason, signs in _REASONS.items() if re.search(signs, text)), "")
    if isinstance(error, ModuleNotFoundError):
        reason = "needs boto3 for AWS_PROFILE (pip install boto3)"
    elif isinstance(error, FileNotFoundError) and not reason:
        return NotStored("This object is not in the storage.")
    said = (reason or "does not answer or refuses").format(*_SETTINGS[cloud])
    return StorageUnavailable(f"The storage (EMBEDQ_STORAGE_URL) {said}. Nothing was stored.", retry_after_s=10)

"""What a bucket's driver raises, as our errors: which of its many reasons it was, and nothing that it says itself."""

from collections.abc import Iterator
from contextlib import contextmanager

from tasks.errors import DiskFull, EmbedqError, NotStored, StorageUnavailable

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


class BehindTheEnd(Exception):
    """A range that begins where the object has ended."""


class AlreadyThere(Exception):
    """A name that was to be new has an object, or somebody else is giving it one."""


@contextmanager
def translated() -> Iterator[None]:
    """Raises what the driver raises as one of ours.

    Raises:
        NotStored: there is no such object, in a bucket that is there.
        BehindTheEnd: there is, and it is shorter.
        AlreadyThere: there is, and there should not be.
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
            raise BehindTheEnd from error
        if not codes.isdisjoint(_THERE):
            raise AlreadyThere from error
        if not codes.isdisjoint(_FULL):
            raise DiskFull("The storage (EMBEDQ_STORAGE_URL) is full. Nothing was stored.", retry_after_s=60) from error
        reason = next((_REASON_OF[code] for code in codes if code in _REASON_OF), "")
        if isinstance(error, FileNotFoundError) and not reason:
            raise NotStored("This object is not in the storage.") from None
        raise StorageUnavailable(
            f"The storage (EMBEDQ_STORAGE_URL) {reason or 'does not answer or refuses'}. Nothing was stored.",
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

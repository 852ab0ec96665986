"""Buckets and other places than this machine, through fsspec's drivers."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import fsspec

from tasks.document_error import DocumentFailed
from tasks.errors import EmbedqError, SourceFailed, StorageUnavailable

_T = TypeVar("_T")
_REFUSED = frozenset({"http", "https", "ftp", "sftp", "ssh", "smb", "data", "github", "git", "jupyter"})
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}


def open_remote(scheme: str) -> Any:
    """The driver for a scheme. Credentials come from its own environment.

    Raises:
        SourceFailed: there is no driver, its package is missing, or the scheme is refused.
    """
    if scheme in _REFUSED:
        # A web server may redirect to any place, so the roots would bound nothing.
        message = f"{scheme}:// is not read. Use a folder or a bucket, or upload the files."
        raise SourceFailed(message, param="source.urls")
    try:
        # Without the cache of listings: it never expires, and would hide new files from the next ingestion.
        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        package = _PACKAGES.get(scheme, f"fsspec[{scheme}]")
        message = f"{scheme}:// needs a driver on the server: pip install {package}"
        raise SourceFailed(message, param="source.urls") from None
    except ValueError:
        raise SourceFailed(f"{scheme}:// is not known.", param="source.urls") from None


def answered(ask: Callable[[], _T]) -> _T:
    """The result of a call to a driver, with its errors as ours.

    Raises:
        DocumentFailed: the object is not there, may not be read, or can never be read.
        StorageUnavailable: any other error, because drivers raise all kinds of them.
    """
    try:
        return ask()
    except (EmbedqError, DocumentFailed, MemoryError):
        raise
    except FileNotFoundError:
        raise DocumentFailed("gone", "The file is no longer there.", "reading") from None
    except PermissionError:
        message = "The server may not read this file: its credentials are not allowed to."
        raise DocumentFailed("unreadable", message, "reading") from None
    except Exception as error:
        if _for_good(error):
            message = (
                f"The source refuses this file ({type(error.__cause__ or error).__name__}). Look at its encryption."
            )
            raise DocumentFailed("unreadable", message, "reading") from None
        # Its text may name keys and hosts, so only its kind is passed on.
        message = f"The source does not answer ({type(error).__name__})."
        raise StorageUnavailable(message, retry_after_s=10) from error


def _for_good(error: Exception) -> bool:
    """Whether an object store refuses the request for good, as for an object that is encrypted with another key."""
    response = getattr(error.__cause__ or error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    again = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in again

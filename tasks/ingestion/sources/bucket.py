"""Buckets and other places than this machine, through fsspec's drivers. Every key is only a name there.

Not by obstore, which stores what is ours: it refuses to list a bucket in which any key is one that it does not take,
such as `a//b` or `../a`, and cannot read such keys.
"""

from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import fsspec

from tasks.document_error import DocumentError, DocumentFailed
from tasks.errors import EmbedqError, SourceFailed, StorageUnavailable
from tasks.ingestion.sources.allowed_paths import is_hidden
from tasks.ingestion.sources.content import Content, changed, gone
from tasks.ingestion.sources.folder import FoundFile, fits, from_here, into, leads_on

_T = TypeVar("_T")
_REFUSED = frozenset({"http", "https", "ftp", "sftp", "ssh", "smb", "data", "github", "git", "jupyter"})
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_VERSIONS = ("ETag", "etag", "md5Hash", "version_id", "LastModified", "last_modified", "mtime", "created")
_MAX_DEPTH = 100
_S3_KEYS = 1000
"""In one answer; it gives no more."""


def open_bucket(scheme: str) -> Any:
    """The driver for a scheme, which fsspec keeps. Credentials come from its own environment.

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


class RemoteContent(Content):
    """An object behind a driver, which is that of `scheme`. See `Content`."""

    def __init__(self, driver: Any, scheme: str, path: str) -> None:
        self.name = f"{scheme}://{path}"
        self._driver = driver
        self._path = path
        info = answered(lambda: driver.info(path))
        if info.get("type") != "file":
            raise gone()
        self.size_bytes = int(info.get("size") or 0)
        told = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
        self.version = f"{info.get('size')} {told}".rstrip()

    def read(self, first: int, size: int) -> bytes:
        """See `Content`."""
        end = min(first + size, self.size_bytes)
        if first >= end:
            return b""
        data = answered(lambda: self._driver.cat_file(self._path, start=first, end=end))
        if len(data) != end - first:
            raise changed()
        return bytes(data)


def kind(driver: Any, path: str) -> str | None:
    """`file`, `folder` or None. Raises like `answered`."""
    try:
        found = answered(lambda: driver.info(path)).get("type")
    except DocumentFailed as failed:
        if failed.error.code == "gone":
            return None
        raise
    return "folder" if found == "directory" else "file"


def objects(
    driver: Any, wanted: tuple[str, Sequence[str]], after: str, progress: Callable[[], None]
) -> Iterator[FoundFile]:
    """The objects below a prefix that fit a pattern, in order, behind a key; hidden ones are passed over.

    Args:
        driver: from `open_bucket`.
        wanted: the prefix, without a slash at its end, and the pattern of what is below it, see `folder.into`.
        after: below the base; "" for all of them.
        progress: to be called about once a second.

    Raises:
        DocumentFailed: there is nothing at the base, or it may not be read.
        StorageUnavailable: it does not answer now.
    """
    base, pattern = wanted
    if not hasattr(driver, "call_s3"):
        yield from _in_folder(driver, wanted, ("", from_here(pattern)), after, progress)
        return
    for path, size in _in_order(driver, base, after, progress):
        # A key that ends with a slash is the marker of a folder that was made by hand.
        if not path or path.endswith("/") or not fits(pattern, path):
            continue
        if {".", ".."} & {*path.split("/")}:
            yield FoundFile(path, size, _no_name())
        elif not is_hidden(path):
            yield FoundFile(path, size)


def _in_order(driver: Any, base: str, after: str, progress: Callable[[], None]) -> Iterator[tuple[str, int]]:
    """Keys of S3 below a prefix, and their sizes. S3 gives them in order, and from any key on."""
    bucket, key, _ = driver.split_path(base)
    prefix = f"{key}/" if key else ""
    request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": _S3_KEYS}
    if after:
        request["StartAfter"] = prefix + after
    exists = bool(after)
    while True:
        progress()
        answer = answered(lambda: driver.call_s3("list_objects_v2", **request, **driver.req_kw))
        found = answer.get("Contents") or ()
        exists = exists or bool(found or answer.get("IsTruncated"))
        if not exists:
            raise gone()
        yield from ((each["Key"].removeprefix(prefix), int(each["Size"])) for each in found)
        if not answer.get("IsTruncated"):
            return
        request["ContinuationToken"] = answer["NextContinuationToken"]


def _in_folder(
    driver: Any, wanted: tuple[str, Sequence[str]], at: tuple[str, set[int]], after: str, progress: Callable[[], None]
) -> Iterator[FoundFile]:
    """The same of drivers that list a folder whole: its names are in memory."""
    progress()
    (base, pattern), (above, places) = wanted, at
    folder = f"{base}/{above}".rstrip("/")
    infos = {_child(info, folder): info for info in answered(lambda: driver.ls(folder, detail=True))}
    for name in sorted(infos):
        path, there = above + name, into(pattern, places, name.rstrip("/"))
        if path <= after and not (name.endswith("/") and after.startswith(path) and after != path):
            continue
        if name in {"/", "./", "../", ".", ".."} or above.count("/") > _MAX_DEPTH:
            if there:
                yield FoundFile(path, error=_no_name())
        elif not name or is_hidden(name):
            continue
        elif not name.endswith("/"):
            if len(pattern) in there:
                yield FoundFile(path, int(infos[name].get("size") or 0))
        elif leads_on(pattern, there):
            try:
                yield from _in_folder(driver, wanted, (path, there), after, progress)
            except DocumentFailed as failed:
                yield FoundFile(path, error=failed.error)


def _child(info: Any, folder: str) -> str:
    """Its name within the folder, with a slash behind that of another folder; "" for the folder's own marker."""
    name, is_folder = str(info["name"]), info.get("type") == "directory"
    if name.strip("/") == folder.strip("/"):
        return "/" if is_folder and name.endswith("//") else ""
    return f"{name.rstrip('/').rpartition('/')[2]}{'/' if is_folder else ''}"


def _no_name() -> DocumentError:
    message = "No file can have this name: a part of it is empty or made of dots. Copy the object to another key."
    return DocumentError("invalid_name", message, "listing")


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
        raise gone() from None
    except PermissionError:
        message = "The server may not read this file: its credentials are not allowed to."
        raise DocumentFailed("unreadable", message, "reading") from None
    except Exception as error:
        if _for_good(error):
            kind_of_error = type(error.__cause__ or error).__name__
            message = f"The source refuses this file ({kind_of_error}). Look at its encryption."
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

"""Folders and buckets that the server may read, named by URLs, which may be patterns."""

import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

from tasks.document_error import DocumentError, DocumentFailed
from tasks.errors import SourceFailed
from tasks.ingestion.sources.allowed_paths import (
    SETTING,
    document_id,
    is_allowed,
    is_encodable,
    is_within,
    name_of,
    real_roots,
    root_around,
    shown,
    split_url,
)
from tasks.ingestion.sources.bucket import RemoteContent, kind, objects, open_bucket
from tasks.ingestion.sources.content import Content, LocalContent, gone, outside
from tasks.ingestion.sources.folder import FoundFile, Walk, fits, real_folder
from tasks.ingestion.sources.source import Entries, Entry, SourceAccess

_MAGIC = re.compile(r"[*?\[]")
_ANY = {"*", "**"}
_ESCAPED = re.compile(r"(?:%[0-9a-f]{2})+", re.IGNORECASE)


class Glob(NamedTuple):
    """A URL, divided where its first wildcard is.

    Attributes:
        number: of the URL.
        scheme: "file" for this machine.
        base: the fixed folder before it, without a slash at the end.
        pattern: the rest, see `folder.into`.
        error: why there is nothing of it.
        named: whether it is a name, of a file or folder that is there: that one lists nothing says nothing.
    """

    number: int
    scheme: str
    base: str
    pattern: Sequence[str] = ()
    error: DocumentError | None = None
    named: bool = False

    @property
    def url(self) -> str:
        """Of the base."""
        return f"{self.scheme}://{self.base}"


class Urls(Entries):
    """`{"urls": [URL, path or pattern]}`. Ids are paths from the root that the server may read.

    A file that several of them match comes once, with the first. One that names or matches nothing is a fault, and the
    failure of the request if it is the only one.

    Raises:
        SourceFailed: one is not below what may be read.
    """

    def __init__(self, urls: Sequence[str], access: SourceAccess) -> None:
        self._access = access
        self._urls = urls
        for number, url in enumerate(urls):
            self._require_allowed(url, number)

    @cached_property
    def _real_tops(self) -> list[str]:
        """The folders that may be read, without links. Each is in a root itself."""
        roots = real_roots(self._access.roots)
        return [top for top in real_roots(self._tops) if any(is_within(top, root) for root in roots)]

    @property
    def _tops(self) -> Sequence[str]:
        return self._access.roots if self._access.within is None else self._access.within

    @cached_property
    def _globs(self) -> list[Glob]:
        return [self._resolved(url, number) for number, url in enumerate(self._urls)]

    def after(self, key: Any) -> Iterator[Entry]:
        """See `Entries`; the key is the URL's number, the path behind its base, and a name of this listing."""
        number, packed, listing = key or (0, "", uuid.uuid4().hex)
        for glob in self._globs[number:]:
            # A name need not be UTF-8; a cursor must.
            path = os.fsdecode(packed.encode("latin-1")) if glob.number == number else ""
            if glob.number == number and packed == _ENDED:
                continue
            some, error = bool(path), glob.error
            try:
                for found in self._found(glob, path, listing) if error is None else ():
                    some = True
                    if not any(_matches(earlier, glob, found.path) for earlier in self._globs[: glob.number]):
                        packed_path = os.fsencode(found.path).decode("latin-1")
                        yield self._entry([glob.number, packed_path, listing], glob, found)
            except DocumentFailed as failed:
                error = failed.error
            if error is not None or not (some or glob.named):
                yield self._fault([glob.number, _ENDED, listing], glob, error or _NO_MATCH)

    def open(self, place: Mapping[str, Any]) -> Content:
        """See `Entries`."""
        scheme, path = split_url(str(place["url"]))
        # Checked again, because the roots may have changed since the listing.
        if not self._allows(scheme, path):
            raise outside()
        if scheme == "file":
            return LocalContent(path, self._real_tops)
        return RemoteContent(open_bucket(scheme), scheme, path)

    def roots(self) -> Mapping[str, str]:
        """See `Entries`."""
        return {shown(glob.url): f"source.urls[{glob.number}]" for glob in self._globs}

    def _found(self, glob: Glob, path: str, listing: str) -> Iterator[FoundFile]:
        if glob.scheme != "file":
            wanted = (glob.base, glob.pattern)
            yield from objects(open_bucket(glob.scheme), wanted, path, self._access.progress)
            return
        top = root_around("file", glob.base, self._tops) or ""
        walk = Walk(glob.base or "/", top, glob.pattern, self._real_tops, listing, self._access.progress)
        yield from walk.after(path)

    def _entry(self, key: Any, glob: Glob, found: FoundFile) -> Entry:
        url = f"{glob.url}/{found.path}"
        error = found.error
        if not is_encodable(url):
            error = DocumentError("invalid_name", "The file's name is not UTF-8. Rename the file.", "listing")
        known_as = document_id(*split_url(url), self._access.roots)
        name, place = found.path.rpartition("/")[2], {"url": url} if error is None else {}
        return Entry(key, known_as, shown(url), shown(name), found.size_bytes, place, error=error)

    def _fault(self, key: Any, glob: Glob, error: DocumentError) -> Entry:
        """Of a URL as a whole. A missing file was never listed, so it is not called gone."""
        error = _NOT_THERE if error.code == "gone" else error
        if len(self._urls) == 1:
            raise SourceFailed(error.message, param="source.urls[0]")
        known_as = name_of(split_url(self._urls[glob.number])[1])
        return Entry(key, known_as, shown(self._urls[glob.number]), error=error, part=shown(glob.url))

    # ---- what a URL means

    def _require_allowed(self, url: str, number: int) -> None:
        """Only its name is checked; links are when they are followed. Raises `SourceFailed`."""
        param = f"source.urls[{number}]"
        if not self._access.roots:
            message = f"This server reads no folders and URLs. Its operator allows them in {SETTING}; or upload them."
            raise SourceFailed(message, param=param)
        scheme, parts = _parts(url)
        fixed = "/".join(parts[: next((n for n, part in enumerate(parts) if _MAGIC.search(part)), len(parts))])
        is_one = "::" not in url and is_encodable(url) and not (scheme == "file" and "\0" in unquote(url))
        if not is_one or not is_allowed(scheme, fixed, self._access.roots):
            message = f"This is not below one of the folders and URLs that the server may read ({SETTING})."
            raise SourceFailed(message, param=param)
        if not self._allows(scheme, fixed):
            raise SourceFailed("This is not below one of the folders and URLs that your key may read.", param=param)

    def _allows(self, scheme: str, path: str) -> bool:
        return is_allowed(scheme, path, self._access.roots) and is_allowed(scheme, path, self._tops)

    def _resolved(self, url: str, number: int) -> Glob:
        """A name that exists is that file or folder, whatever is in it; else it may be a pattern, or escaped."""
        scheme, parts = _parts(url)
        base, rest = "", ["**"] if parts[-1] == "" else []
        try:
            for at, part in enumerate(parts):
                name = self._literal(scheme, base, part, escaped="://" in url) if at else part
                if name is None:
                    self._require_below(scheme, base)
                    rest = [*map(_unescaped if scheme == "file" and "://" in url else str, parts[at:]), *rest]
                    return Glob(number, scheme, base.rstrip("/"), [part for part in rest if part])
                base += "/" * (at > 0) + name
            return self._named(number, scheme, base.rstrip("/"))
        except DocumentFailed as failed:
            return Glob(number, scheme, base.rstrip("/"), error=failed.error)

    def _literal(self, scheme: str, base: str, part: str, *, escaped: bool) -> str | None:
        """What a part of a path is the name of; None: it is a pattern."""
        magic, decoded = _MAGIC.search(part), part
        if scheme == "file" and escaped and _ESCAPED.search(part):
            decoded = unquote(part)
        if part in _ANY or (not magic and decoded == part):
            return None if part in _ANY else part
        if self._kind(scheme, f"{base}/{part}"):
            return part
        return None if magic else decoded

    def _kind(self, scheme: str, path: str) -> str | None:
        """`file`, `folder`, or None: it is not there. Raises `DocumentFailed`."""
        if not self._allows(scheme, path):
            return None
        if scheme != "file":
            return kind(open_bucket(scheme), path)
        top = root_around("file", path, self._tops) or ""
        folder = path if path in {top, ""} else path.rpartition("/")[0]
        # Outside of the roots a caller must not learn what exists.
        if not real_folder(folder or "/", top, self._real_tops):
            return None
        return "folder" if os.path.isdir(path or "/") else "file" if os.path.lexists(path) else None  # noqa: PTH112

    def _named(self, number: int, scheme: str, path: str) -> Glob:
        self._require_below(scheme, path)
        what = self._kind(scheme, path)
        if what is None:
            raise gone()
        if what == "folder":
            return Glob(number, scheme, path, ("**",), named=True)
        folder, _, name = path.rpartition("/")
        return Glob(number, scheme, folder, (_as_pattern(name),), named=True)

    def _require_below(self, scheme: str, path: str) -> None:
        if not self._allows(scheme, path):
            raise outside()


_ENDED = "\xff\xff"
"""In the place of a path: there is nothing more of this URL."""
_NO_MATCH = DocumentError("no_match", "The URL matches no file on the server. Look at its wildcards.", "listing")
_NOT_THERE = DocumentError("no_match", "There is no such file or folder on the server.", "listing")


def _parts(url: str) -> tuple[str, list[str]]:
    """The scheme, and the path as it is written; in folders "." is nowhere."""
    scheme, path = split_url(url)
    parts = path.split("/")
    if scheme == "file":
        inner = [part for part in parts[1:-1] if part not in {"", "."}]
        parts = [parts[0], *inner, "" if parts[-1] == "." else parts[-1]] if len(parts) > 1 else parts
    return scheme, parts


def _as_pattern(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _unescaped(part: str) -> str:
    """A pattern with its escapes undone: those of wildcards are no wildcards."""
    return _ESCAPED.sub(lambda match: _as_pattern(unquote(match[0])), part)


def _matches(earlier: Glob, glob: Glob, path: str) -> bool:
    url, base = f"{glob.url}/{path}", f"{earlier.url}/"
    return earlier.error is None and url.startswith(base) and fits(earlier.pattern, url[len(base) :])

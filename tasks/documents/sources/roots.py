"""The folders and URLs that may be read, which are below EMBEDQ_INGEST_ROOTS, and globs within them."""

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from tasks.errors import SourceFailed

_MAGIC = re.compile(r"[*?\[]")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)
SETTING = "EMBEDQ_INGEST_ROOTS"


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern, divided where its first wildcard is.

    Attributes:
        scheme: "file" for this machine.
        base: the fixed folder before it, without a slash at the end.
        pattern: the rest, by folder; `**` is any number of folders. Empty: `base` may be a file or a folder.
    """

    scheme: str
    base: str
    pattern: tuple[str, ...]


def parse_glob(url: str, roots: Sequence[str], param: str) -> Glob:
    """A glob below one of the roots. Only its name is checked here; links are checked when they are followed.

    Raises:
        SourceFailed: it is not below a root, or there are no roots.
    """
    if not roots:
        message = f"This server reads no folders and URLs. Its operator allows them in {SETTING}; or upload the files."
        raise SourceFailed(message, param=param)
    scheme, path = split_url(url)
    parts = [part for part in path.split("/") if part != "." or scheme != "file"]
    fixed = next((n for n, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    if "::" in url or not is_encodable(url) or not is_allowed(scheme, "/".join(parts[:fixed]), roots):
        message = f"This is not below one of the folders and URLs that the server may read ({SETTING})."
        raise SourceFailed(message, param=param)
    pattern = tuple(part for part in parts[fixed:] if part)
    if parts[-1] == "":
        pattern = (*pattern, "**")
    return Glob(scheme, "/".join(part for n, part in enumerate(parts[:fixed]) if part or n == 0), pattern)


def is_allowed(scheme: str, path: str, roots: Sequence[str]) -> bool:
    """Whether its name is below a root and not hidden: no name behind the root begins with a dot."""
    # Some drivers decode names twice.
    if ".." in unquote(unquote(path)).split("/") or "\0" in path or (scheme == "file" and not path.startswith("/")):
        return False
    tops = [top.rstrip("/") for root_scheme, top in map(split_url, roots) if root_scheme == scheme]
    behind = [path[len(top) :] for top in tops if path.rstrip("/") == top or path.startswith(top + "/")]
    return any(not _is_hidden(rest) for rest in behind)


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in unquote(unquote(path)).split("/"))


def is_encodable(text: str) -> bool:
    """Whether it is valid Unicode. The name of a file that is not UTF-8 is not."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def split_url(url: str) -> tuple[str, str]:
    """Scheme and path; a plain path is of the scheme `file`."""
    match = _URL.fullmatch(url)
    return (match[1].lower(), match[2]) if match else ("file", url)


def real_roots(roots: Sequence[str]) -> list[str]:
    """The folders among the roots, without links."""
    return [os.path.realpath(path) for scheme, path in map(split_url, roots) if scheme == "file"]


def is_within(path: str, root: str) -> bool:
    """Whether it is the root or below it; both without links, `.` and `..`."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def root_around(scheme: str, path: str, roots: Sequence[str]) -> str | None:
    """The outermost root that is the path or contains it, without a slash at the end; None: there is none."""
    tops = (top.rstrip("/") for root_scheme, top in map(split_url, roots) if root_scheme == scheme)
    return min((top for top in tops if f"{path}/".startswith(f"{top}/")), key=len, default=None)


def document_id(scheme: str, path: str, roots: Sequence[str]) -> str:
    """A file's path below its root, with the name of the root first; its URL if two roots have that name.

    Other URLs of the request make no difference. Else one more URL would give the same file a second id.
    """
    tops = [(root_scheme, top.rstrip("/")) for root_scheme, top in map(split_url, roots)]
    root = root_around(scheme, path, roots)
    if root is None:
        return f"{scheme}://{path}"
    name = root.rpartition("/")[2]
    if any(top.rpartition("/")[2] == name and (root_scheme, top) != (scheme, root) for root_scheme, top in tops):
        return f"{scheme}://{path}"
    return f"{name}{path[len(root) :]}".lstrip("/")


class Matcher:
    """The position of a walk in a pattern; each name gives the next position. Immutable."""

    def __init__(self, pattern: Sequence[str], at: frozenset[int] | None = None) -> None:
        self._pattern = pattern
        self._at = self._closed({0} if at is None else at)

    def into(self, name: str) -> "Matcher":
        """The position behind one more name."""
        following = set()
        for at in self._at:
            part = self._pattern[at] if at < len(self._pattern) else None
            if part == "**":
                following.add(at)
            if part is not None and (part == "**" or fnmatch.fnmatchcase(name, part)):
                following.add(at if part == "**" else at + 1)
        return Matcher(self._pattern, frozenset(following))

    @property
    def matches(self) -> bool:
        """Whether the names so far match the whole pattern."""
        return len(self._pattern) in self._at

    @property
    def leads_on(self) -> bool:
        """Whether something below can match."""
        return any(at < len(self._pattern) for at in self._at)

    def _closed(self, at: frozenset[int] | set[int]) -> frozenset[int]:
        closed = set(at)
        for start in at:
            end = start
            while end < len(self._pattern) and self._pattern[end] == "**":
                end += 1
                closed.add(end)
        return frozenset(closed)

"""What the server may read, which is below EMBEDQ_INGEST_ROOTS, and what a file of it is called."""

import os
import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import quote, unquote

SETTING = "EMBEDQ_INGEST_ROOTS"
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)
# Nobody sees them, or they turn round what stands behind them: "gpj.exe" would be shown as "exe.jpg".
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def split_url(url: str) -> tuple[str, str]:
    """Scheme and path; a plain path is of the scheme `file`."""
    match = _URL.fullmatch(url)
    return (match[1].lower(), match[2]) if match else ("file", url)


def is_allowed(scheme: str, path: str, roots: Sequence[str]) -> bool:
    """Whether its name is below a root and not hidden: no name behind the root begins with a dot."""
    # Some drivers decode names twice.
    if ".." in unquote(unquote(path)).split("/") or "\0" in path or (scheme == "file" and not path.startswith("/")):
        return False
    tops = [top.rstrip("/") for root_scheme, top in map(split_url, roots) if root_scheme == scheme]
    behind = [path[len(top) :] for top in tops if path.rstrip("/") == top or path.startswith(top + "/")]
    return any(not is_hidden(unquote(unquote(rest))) for rest in behind)


def is_hidden(path: str) -> bool:
    """Whether a name in it begins with a dot."""
    return path.startswith(".") or "/." in path


def is_encodable(text: str) -> bool:
    """Whether it is valid Unicode. The name of a file that is not UTF-8 is not."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


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
        return name_of(f"{scheme}://{path}")
    name = root.rpartition("/")[2]
    if any(top.rpartition("/")[2] == name and (root_scheme, top) != (scheme, root) for root_scheme, top in tops):
        return name_of(f"{scheme}://{path}")
    return name_of(f"{name}{path[len(root) :]}".lstrip("/"))


def name_of(path: str) -> str:
    """What a document is called after its file, however this machine's file system writes accents."""
    return unicodedata.normalize("NFC", shown(path))


def shown(path: str) -> str:
    """As its owner sees it: what cannot be seen is escaped, and what is not UTF-8 is a question mark."""
    return _UNSHOWN.sub(lambda match: quote(match[0]), path.encode(errors="replace").decode())

"""Folders and buckets that the server may read, named by globs."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.access import SourceAccess
from tasks.documents.sources.content import Content, LocalContent, RemoteContent, gone, outside
from tasks.documents.sources.file_source import Entry
from tasks.documents.sources.remote_files import answered, open_remote
from tasks.documents.sources.roots import (
    Glob,
    Matcher,
    document_id,
    is_encodable,
    parse_glob,
    root_around,
    split_url,
)
from tasks.documents.sources.source import SourceRoot
from tasks.documents.sources.walk import Child, FoundFile, LocalTree, Tree, Walk, circle, leads_back, shown, smallest
from tasks.errors import SourceFailed


class Urls:
    """`{"urls": [globs]}`. Ids are paths from the root that the server may read.

    A file that several globs match comes once, with the first of them.
    """

    def __init__(self, urls: Sequence[str], access: SourceAccess) -> None:
        self._access = access
        self._globs = [parse_glob(url, access.roots, f"source.urls[{n}]") for n, url in enumerate(urls)]
        for number, glob in enumerate(self._globs):
            if not access.allows(glob.scheme, glob.base):
                raise SourceFailed(
                    "This is not below one of the folders and URLs that your key may read.",
                    param=f"source.urls[{number}]",
                )
        self._trees: dict[str, Tree] = {}
        self._drivers: dict[str, Any] = {}

    @cached_property
    def _resolved(self) -> list[Glob]:
        return [self._resolve(glob, number) for number, glob in enumerate(self._globs)]

    def after(self, key: Any) -> Iterator[Entry]:
        """See `Entries`; the key is the glob's number, the path behind its base, and a name of this listing."""
        number, packed, listing = key or (0, "", uuid.uuid4().hex)
        path = os.fsdecode(packed.encode("latin-1"))
        for at in range(number, len(self._globs)):
            glob = self._resolved[at]
            walk = self._walk(glob, listing)
            try:
                for file in walk.after(path if at == number else ""):
                    if not self._came_earlier(at, file):
                        # A name need not be UTF-8; a cursor must.
                        yield self._entry([at, os.fsencode(file.path).decode("latin-1"), listing], glob, file)
            except DocumentFailed as failed:
                raise _refused(failed, at) from None

    def open(self, place: Mapping[str, Any]) -> Content:
        """See `Entries`."""
        url = str(place["url"])
        scheme, path = split_url(url)
        # Checked again, because the roots may have changed since the listing.
        if not self._access.allows(scheme, path):
            raise outside()
        if scheme == "file":
            return LocalContent(path, self._access.real_tops())
        return RemoteContent(self._driver(scheme), scheme, path)

    def roots(self) -> list[SourceRoot]:
        """See `Source.roots`."""
        places = [(f"source.urls[{n}]", glob.scheme, glob.base) for n, glob in enumerate(self._globs)]
        return [
            SourceRoot(param, _url(scheme, base), document_id(scheme, base, self._access.roots))
            for param, scheme, base in places
        ]

    def _walk(self, glob: Glob, listing: str) -> Walk:
        tree = self._tree(glob.scheme)
        return Walk(tree, glob, listing, self._access.progress, self._access.names)

    def _entry(self, key: Any, glob: Glob, file: FoundFile) -> Entry:
        url = _joined(_url(glob.scheme, glob.base), file.path)
        known_as = document_id(*split_url(url), self._access.roots)
        error = file.error
        if not is_encodable(url):
            known_as, url = _shown(known_as), _shown(url)
            error = DocumentError("invalid_name", "The file's name is not UTF-8. Rename the file.", "listing")
        name = file.path.rpartition("/")[2]
        return Entry(key, known_as, url, name, file.size_bytes, {"url": url}, error=error)

    def _came_earlier(self, number: int, file: FoundFile) -> bool:
        glob = self._resolved[number]
        url = _joined(_url(glob.scheme, glob.base), file.path)
        return any(_matches(earlier, url) for earlier in self._resolved[:number])

    def _resolve(self, glob: Glob, number: int) -> Glob:
        """The glob with a pattern: the name of a file, or everything below a folder."""
        try:
            tree = self._tree(glob.scheme)
            self._require_straight(tree, glob)
            if glob.pattern:
                return glob
            tree.real(glob.base or "/")
            kind = tree.kind(glob.base or "/")
        except DocumentFailed as failed:
            raise _refused(failed, number) from None
        if kind is None:
            raise _refused(gone(), number)
        if kind == "folder":
            return Glob(glob.scheme, glob.base, ("**",))
        base, _, name = glob.base.rpartition("/")
        return Glob(glob.scheme, base, (name,))

    def _require_straight(self, tree: Tree, glob: Glob) -> None:
        """Refuses a link to a folder around it, which would give each file below a second id. A walk refuses it too."""
        path = root_around(glob.scheme, glob.base, self._access.tops) or ""
        real = tree.real(path or "/")
        for name in glob.base[len(path) :].split("/")[1:]:
            path, around = f"{path}/{name}", real
            real = tree.real(path)
            if leads_back(real, around, name):
                raise circle()

    def _tree(self, scheme: str) -> Tree:
        if scheme not in self._trees:
            roots = self._access.real_tops()
            self._trees[scheme] = (
                LocalTree(roots) if scheme == "file" else remote_tree(self._driver(scheme), self._access.s3_keys)
            )
        return self._trees[scheme]

    def _driver(self, scheme: str) -> Any:
        if scheme not in self._drivers:
            self._drivers[scheme] = open_remote(scheme)
        return self._drivers[scheme]


def _refused(failed: DocumentFailed, number: int) -> SourceFailed:
    """The failure of a URL of the request. A missing file was never listed, so it is not called gone."""
    missing = failed.error.code == "gone"
    message = "There is no such file or folder on the server." if missing else failed.error.message
    return SourceFailed(message, param=f"source.urls[{number}]")


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode()


def _url(scheme: str, path: str) -> str:
    return f"{scheme}://{path}"


def _joined(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path}"


def _matches(glob: Glob, url: str) -> bool:
    base = _url(glob.scheme, glob.base).rstrip("/") + "/"
    if not url.startswith(base):
        return False
    matcher = Matcher(glob.pattern)
    for name in url[len(base) :].split("/"):
        matcher = matcher.into(name)
    return matcher.matches


# ---- prefixes of buckets, as folders ---------------------------------------------------------------------------------

_LAST = "\U0010ffff"
"""Behind every other character, in S3's order too."""


def remote_tree(files: Any, s3_keys: int) -> Tree:
    """The tree for one of fsspec's drivers; `s3_keys`: see `SourceAccess`."""
    return S3Tree(files, s3_keys) if hasattr(files, "call_s3") else RemoteTree(files)


class RemoteTree:
    """Any place for which fsspec has a driver. Drivers list a folder whole: all its names are in memory for a while."""

    def __init__(self, files: Any) -> None:
        self._files = files

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """See `Tree`."""
        return smallest(number, self._listed(folder), behind, progress)

    def size_bytes(self, path: str, child: Child) -> int | None:  # noqa: ARG002 - the listing has said it
        """See `Tree`."""
        return child.size_bytes or 0

    def real(self, path: str) -> str:
        """See `Tree`."""
        return path

    def kind(self, path: str) -> str | None:
        """See `Tree`."""
        try:
            kind = answered(lambda: self._files.info(path)).get("type")
        except DocumentFailed as failed:
            if failed.error.code == "gone":
                return None
            raise
        return "folder" if kind == "directory" else "file"

    def _listed(self, folder: str) -> Iterator[Child]:
        for info in answered(lambda: self._files.ls(folder, detail=True)):
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if info.get("type") == "directory":
                yield Child(f"{name}/")
            elif str(info["name"]).strip("/") != folder.strip("/"):  # the folder's own marker
                yield Child(name, info.get("size"))


class S3Tree(RemoteTree):
    """S3 lists in order and from any name on: a prefix of a million keys is read once, a window at a time."""

    def __init__(self, files: Any, max_keys: int) -> None:
        super().__init__(files)
        self._max_keys = max_keys

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """See `Tree`."""
        return list(islice(shown(self._from(folder, behind, progress), behind, progress), number))

    def _from(self, folder: str, behind: str, progress: Callable[[], None]) -> Iterator[Child]:
        bucket, key, _ = self._files.split_path(folder)
        prefix = f"{key.strip('/')}/" if key.strip("/") else ""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "Delimiter": "/", "MaxKeys": self._max_keys}
        if behind:
            # Behind a folder means behind all keys in it. Else the folder would be listed again.
            request["StartAfter"] = prefix + behind + (_LAST if behind.endswith("/") else "")
        exists = bool(behind)
        while True:
            progress()
            answer = answered(lambda: self._files.call_s3("list_objects_v2", **request, **self._files.req_kw))
            children = _children(answer, prefix)
            exists = exists or bool(children or answer.get("KeyCount") or answer.get("IsTruncated"))
            if not exists:
                raise gone()
            yield from children
            if not answer.get("IsTruncated"):
                return
            request["ContinuationToken"] = answer["NextContinuationToken"]


def _children(answer: Any, prefix: str) -> list[Child]:
    """The keys and common prefixes of one answer, merged into one order."""
    folders = [Child(folder["Prefix"].removeprefix(prefix)) for folder in answer.get("CommonPrefixes") or ()]
    files = [Child(file["Key"].removeprefix(prefix), file["Size"]) for file in answer.get("Contents") or ()]
    # A key that ends with a slash is the folder's own marker, with nothing left of its name.
    return sorted((child for child in folders + files if child.name), key=lambda child: child.name)

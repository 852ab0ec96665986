"""A walk through folders in a fixed order, which can be taken up again behind any of its files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tasks.documents.faults import DocumentError, DocumentFailed
from tasks.documents.sources.roots import Matcher
from tasks.documents.sources.trees import Child, Tree, circle, leads_back, sorted_names

_MAX_DEPTH = 100
_MAX_LINKS = 8
"""Links to folders on one path. A few that point at each other make more paths than there are atoms."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that matches, or what is wrong at a place. `path`: behind the base; a folder's ends with "/"."""

    path: str
    size_bytes: int = 0
    error: DocumentError | None = None


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str
    real: str
    relative: str
    matcher: Matcher
    depth: int = 0
    links: int = 0


class Walk:
    """All files below a base folder that match a pattern."""

    def __init__(
        self, tree: Tree, base: str, pattern: tuple[str, ...], listing: str, progress: Callable[[], None]
    ) -> None:
        self._tree = tree
        self._base = base
        self._pattern = pattern
        self._listing = listing
        self._progress = progress

    def after(self, path: str) -> Iterator[Found]:
        """Those behind a path, all behind "".

        Raises:
            DocumentFailed: the base itself cannot be read.
            StorageUnavailable: it does not answer now.
        """
        parts = path.split("/")
        behind = [f"{part}/" for part in parts[:-1]] + parts[-1:]
        if not behind[-1] and len(behind) > 1:
            behind.pop()
        top = _Folder(self._base, self._tree.real(self._base), "", Matcher(self._pattern))
        return self._in(top, behind)

    def _in(self, folder: _Folder, behind: list[str]) -> Iterator[Found]:
        first, rest = behind[0], behind[1:]
        if rest:
            yield from self._below(folder, first, rest)
        names = sorted_names.after(self._tree, self._listing, folder.path, first, self._progress)
        try:
            for child in names:
                if child.name.endswith("/"):
                    yield from self._below(folder, child.name, [""])
                else:
                    yield from self._file(folder, child)
        except DocumentFailed as failed:
            if not folder.relative:
                raise
            yield Found(folder.relative, error=failed.error)

    def _below(self, folder: _Folder, name: str, behind: list[str]) -> Iterator[Found]:
        matcher = folder.matcher.into(name[:-1])
        if not matcher.leads_on:
            return
        try:
            below = self._entered(folder, name, matcher)
        except DocumentFailed as failed:
            yield Found(folder.relative + name, error=failed.error)
            return
        yield from self._in(below, behind)

    def _entered(self, folder: _Folder, name: str, matcher: Matcher) -> _Folder:
        path, relative = f"{folder.path.rstrip('/')}/{name[:-1]}", folder.relative + name
        real = self._tree.real(path)
        is_link = real != f"{folder.real.rstrip('/')}/{name[:-1]}"
        links = folder.links + is_link
        if leads_back(real, folder.real, name[:-1]):
            raise circle()
        if links > _MAX_LINKS or folder.depth >= _MAX_DEPTH:
            message = f"Folders deeper than {_MAX_DEPTH}, or behind more than {_MAX_LINKS} links, are not read."
            raise DocumentFailed("symlink_loop" if links > _MAX_LINKS else "unreadable", message, "listing")
        return _Folder(path, real, relative, matcher, folder.depth + 1, links)

    def _file(self, folder: _Folder, child: Child) -> Iterator[Found]:
        if not folder.matcher.into(child.name).matches:
            return
        path = f"{folder.path.rstrip('/')}/{child.name}"
        try:
            size_bytes = self._tree.size_bytes(path, child)
        except DocumentFailed as failed:
            yield Found(folder.relative + child.name, error=failed.error)
            return
        if size_bytes is not None:
            yield Found(folder.relative + child.name, size_bytes)

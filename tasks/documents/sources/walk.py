"""A walk through folders in a fixed order, which can continue behind any of its files."""

import errno
import heapq
import itertools
import os
import stat
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tasks.document_error import DocumentError, DocumentFailed
from tasks.documents.sources.content import failed_to_read, outside
from tasks.documents.sources.roots import Glob, Matcher, is_within

_MAX_DEPTH = 100
_MAX_LINKS = 8
"""Links to folders on one path. A few that point at each other make more paths than there are atoms."""
WINDOW = 16_384
"""Names of one folder that are kept. Its listing is read anew for each window."""
_WINDOWS_KEPT = 8


@dataclass(frozen=True, slots=True)
class Child:
    """An entry of a folder; the name of a folder ends with "/". `size_bytes`: None if not known yet."""

    name: str
    size_bytes: int | None = None


class Tree(Protocol):
    """Folders with files. The form of paths is the tree's own."""

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """The first children of a folder behind a name, in their order and without hidden ones.

        Raises:
            DocumentFailed: it is gone, or may not be read.
        """

    def size_bytes(self, path: str, child: Child) -> int | None:
        """Of a file; None: neither file nor folder. Raises `DocumentFailed`."""

    def real(self, path: str) -> str:
        """Without links. Raises `DocumentFailed` where it may not be read, or leads in a circle."""

    def kind(self, path: str) -> str | None:
        """`file`, `folder` or None."""


class LocalTree:
    """Folders of this machine."""

    def __init__(self, real_roots: Sequence[str]) -> None:
        self._real_roots = real_roots

    def first(self, number: int, folder: str, behind: str, progress: Callable[[], None]) -> list[Child]:
        """See `Tree`. Memory is for `number` names, however many there are."""
        return smallest(number, _entries(folder), behind, progress)

    def size_bytes(self, path: str, child: Child) -> int | None:  # noqa: ARG002 - another tree's listing has it
        """See `Tree`."""
        try:
            state = os.lstat(path)
            if stat.S_ISLNK(state.st_mode):
                self.real(path)
                state = os.stat(path)  # noqa: PTH116
        except OSError as error:
            raise failed_to_read(error) from None
        return state.st_size if stat.S_ISREG(state.st_mode) else None

    def real(self, path: str) -> str:
        """See `Tree`."""
        # Its target is checked first: outside of the roots a caller must not learn what exists.
        real = os.path.realpath(path)
        if not any(is_within(real, root) for root in self._real_roots):
            raise outside()
        try:
            os.path.realpath(path, strict=True)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise circle() from None
            raise failed_to_read(error) from None
        return real

    def kind(self, path: str) -> str | None:
        """See `Tree`."""
        return "folder" if os.path.isdir(path) else "file" if os.path.isfile(path) else None  # noqa: PTH112, PTH113


class SortedNames:
    """Children of folders in order, in bounded memory.

    A folder of a million names is listed once for each window, not for each page: the windows used last stay, also
    for the next job in this process. A window belongs to one listing, so a later listing sees no old names.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window_size = window
        self._windows: OrderedDict[tuple[str, str, str], list[Child]] = OrderedDict()

    def after(self, tree: Tree, listing: str, folder: str, name: str, progress: Callable[[], None]) -> Iterator[Child]:
        """Those behind a name, without hidden ones."""
        while True:
            window, start = self._window(tree, listing, folder, name, progress)
            for child in itertools.islice(window, start, None):
                yield child
                name = child.name
            if len(window) < self._window_size:
                return

    def _window(
        self, tree: Tree, listing: str, folder: str, name: str, progress: Callable[[], None]
    ) -> tuple[list[Child], int]:
        for (of, where, first), window in self._windows.items():
            if (of, where) == (listing, folder) and first <= name:
                start = bisect_right(window, name, key=lambda child: child.name)
                if start < len(window) or len(window) < self._window_size:
                    self._windows.move_to_end((of, where, first))
                    return window, start
        window = tree.first(self._window_size, folder, name, progress)
        self._windows[(listing, folder, name)] = window
        while len(self._windows) > _WINDOWS_KEPT:
            self._windows.popitem(last=False)
        return window, 0


sorted_names = SortedNames()
"""The windows of this process."""


def circle() -> DocumentFailed:
    """The error for a link to a folder around it."""
    return DocumentFailed("symlink_loop", "The link leads to a folder that it lies in. It was not followed.", "listing")


def leads_back(real: str, around: str, name: str) -> bool:
    """Whether the entry `name` of a folder links to that folder or to one around it. Both paths are without links."""
    return real != f"{around.rstrip('/')}/{name}" and f"{around}/".startswith(f"{real.rstrip('/')}/")


def smallest(number: int, children: Iterable[Child], behind: str, progress: Callable[[], None]) -> list[Child]:
    """The first children behind a name in order, from children in any order."""
    return heapq.nsmallest(number, shown(children, behind, progress), key=lambda child: child.name)


def shown(children: Iterable[Child], behind: str, progress: Callable[[], None]) -> Iterator[Child]:
    """The children behind a name that are not hidden."""
    for number, child in enumerate(children):
        if number % WINDOW == 0:
            progress()
        if child.name > behind and not child.name.startswith("."):
            yield child


def _entries(folder: str) -> Iterator[Child]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                yield Child(f"{entry.name}/" if _is_folder(entry) else entry.name)
    except OSError as error:
        raise failed_to_read(error) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


# ---- the walk --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that matches, or the error of a place. `path`: below the base; that of a folder ends with "/"."""

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
        self,
        tree: Tree,
        glob: Glob,
        listing: str,
        progress: Callable[[], None],
        names: SortedNames,
    ) -> None:
        self._tree = tree
        self._base = glob.base or "/"
        self._pattern = glob.pattern
        self._listing = listing
        self._progress = progress
        self._names = names

    def after(self, path: str) -> Iterator[FoundFile]:
        """The files behind a path, all of them for "".

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

    def _in(self, folder: _Folder, behind: list[str]) -> Iterator[FoundFile]:
        first, rest = behind[0], behind[1:]
        if rest:
            yield from self._below(folder, first, rest)
        names = self._names.after(self._tree, self._listing, folder.path, first, self._progress)
        try:
            for child in names:
                if child.name.endswith("/"):
                    yield from self._below(folder, child.name, [""])
                else:
                    yield from self._file(folder, child)
        except DocumentFailed as failed:
            if not folder.relative:
                raise
            yield FoundFile(folder.relative, error=failed.error)

    def _below(self, folder: _Folder, name: str, behind: list[str]) -> Iterator[FoundFile]:
        matcher = folder.matcher.into(name[:-1])
        if not matcher.leads_on:
            return
        try:
            below = self._entered(folder, name, matcher)
        except DocumentFailed as failed:
            yield FoundFile(folder.relative + name, error=failed.error)
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

    def _file(self, folder: _Folder, child: Child) -> Iterator[FoundFile]:
        if not folder.matcher.into(child.name).matches:
            return
        path = f"{folder.path.rstrip('/')}/{child.name}"
        try:
            size_bytes = self._tree.size_bytes(path, child)
        except DocumentFailed as failed:
            yield FoundFile(folder.relative + child.name, error=failed.error)
            return
        if size_bytes is not None:
            yield FoundFile(folder.relative + child.name, size_bytes)

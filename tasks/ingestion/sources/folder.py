"""Folders of this machine: the files below one that fit a pattern, in a fixed order, from any file on."""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from tasks.document_error import DocumentError, DocumentFailed
from tasks.ingestion.sources.allowed_paths import is_hidden, is_within
from tasks.ingestion.sources.content import changed, failed_to_read, open_real, outside

_MAX_DEPTH = 100
_LARGE = 10_000
_TICK = 10_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FoundFile(NamedTuple):
    """A file that fits, or the error of a place. `path`: below the base; that of a folder ends with "/"."""

    path: str
    size_bytes: int = 0
    error: DocumentError | None = None


# ---- patterns --------------------------------------------------------------------------------------------------------


def into(pattern: Sequence[str], places: Collection[int], name: str) -> set[int]:
    """The places in a pattern behind one more name, if these are those before it.

    A pattern is a name or glob for each folder; `**` is any number of folders. It fits where its end is one of the
    places, and can fit below where another one is. A regular expression would take exponential time for some.
    """
    found = set[int]()
    for place in places:
        if place < len(pattern) and pattern[place] == "**":
            found.add(place)
        elif place < len(pattern) and fnmatchcase(name, pattern[place]):
            found.add(place + 1)
    return from_here(pattern, found)


def from_here(pattern: Sequence[str], places: Collection[int] = (0,)) -> set[int]:
    """These places and all that can be reached without a name: `**` is no folder, too."""
    found = set(places)
    for number, part in enumerate(pattern):
        if part == "**" and number in found:
            found.add(number + 1)
    return found


def fits(pattern: Sequence[str], path: str) -> bool:
    """Whether a whole path does."""
    places: Collection[int] = from_here(pattern)
    for name in path.split("/"):
        places = into(pattern, places, name)
    return len(pattern) in places


def leads_on(pattern: Sequence[str], places: Collection[int]) -> bool:
    """Whether something below can fit."""
    return any(place < len(pattern) for place in places)


# ---- the walk --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Walk:
    """What is looked for below a folder.

    Attributes:
        base: absolute.
        top: the root that the base is in, which alone may be behind a link.
        real_tops: folders that may be read, without links.
        listing: in which all that is found belongs together: a later one sees no old names.
        progress: to be called about once a second.
    """

    base: str
    top: str
    pattern: Sequence[str]
    real_tops: Sequence[str]
    listing: str
    progress: Callable[[], None]

    def after(self, path: str) -> Iterator[FoundFile]:
        """The files behind a path, all of them for "". Hidden ones are passed over, and links to folders are faults.

        Raises:
            DocumentFailed: the base itself cannot be read.
        """
        with _opened(self.base, self.top, self.real_tops) as folder:
            names = self._names(folder, "")
            yield from self._below(folder, names, "", from_here(self.pattern), path)

    def _below(
        self, folder: int, names: Sequence[str], above: str, places: Collection[int], after: str
    ) -> Iterator[FoundFile]:
        for name in names:
            path = above + name
            if path <= after and not (name.endswith("/") and after.startswith(path) and after != path):
                continue
            there = into(self.pattern, places, name.rstrip("/"))
            if not name.endswith("/"):
                yield from self._file(folder, path, there)
            elif leads_on(self.pattern, there):
                yield from self._entered(folder, path, there, after)

    def _entered(self, folder: int, path: str, places: Collection[int], after: str) -> Iterator[FoundFile]:
        """What is in a folder. It is opened from the one around it: no link that comes in between leads elsewhere."""
        try:
            if path.count("/") > _MAX_DEPTH:
                raise _unlisted("unreadable", f"Folders deeper than {_MAX_DEPTH} are not read.")
            below = os.open(path[:-1].rpartition("/")[2], _FOLDER, dir_fd=folder)
        except OSError as error:
            became = error.errno in {errno.ENOTDIR, errno.ELOOP}
            yield FoundFile(path, error=(changed() if became else failed_to_read(error)).error)
            return
        except DocumentFailed as failed:
            yield FoundFile(path, error=failed.error)
            return
        try:
            names = self._names(below, path)
            yield from self._below(below, names, path, places, after)
        except DocumentFailed as failed:
            yield FoundFile(path, error=failed.error)
        finally:
            os.close(below)

    def _file(self, folder: int, path: str, places: Collection[int]) -> Iterator[FoundFile]:
        if not places:
            return
        fit = len(self.pattern) in places
        try:
            state = os.stat(path.rpartition("/")[2], dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(state.st_mode):
                state = self._target(f"{self.base.rstrip('/')}/{path}")
                if stat.S_ISDIR(state.st_mode):
                    raise _unlisted("link_to_folder", "Links to folders are not followed. Name the folder itself.")
        except OSError as error:
            if fit:
                yield FoundFile(path, error=failed_to_read(error).error)
        except DocumentFailed as failed:
            if fit or failed.error.code in {"link_to_folder", "outside_roots"}:
                yield FoundFile(path, error=failed.error)
        else:
            if fit and stat.S_ISREG(state.st_mode):
                yield FoundFile(path, state.st_size)

    def _target(self, path: str) -> os.stat_result:
        # Where it leads is checked first: outside of the roots a caller must not learn what exists.
        if not any(is_within(os.path.realpath(path), top) for top in self.real_tops):
            raise outside()
        try:
            return os.stat(os.path.realpath(path, strict=True))  # noqa: PTH116
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _unlisted("symlink_loop", "The link leads to itself.") from None
            raise

    def _names(self, folder: int, path: str) -> Sequence[str]:
        """What is in a folder, in order, that of folders with "/" behind; that of the last large one is kept."""
        key = (self.listing, self.base, path)
        if key in _kept:
            return _kept[key]
        names = list[str]()
        try:
            with os.scandir(folder) as entries:
                for number, entry in enumerate(entries):
                    if number % _TICK == 0:
                        self.progress()
                    if not is_hidden(entry.name):
                        names.append(f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name)
        except OSError as error:
            raise failed_to_read(error) from None
        names.sort()
        if len(names) > _LARGE:
            _kept.clear()
            _kept[key] = names
        return names


_kept: dict[tuple[str, str, str], Sequence[str]] = {}


def real_folder(path: str, top: str, real_tops: Sequence[str]) -> str:
    """A folder without links, of which only those on the way to its root are followed; "" if it is not there.

    Raises:
        DocumentFailed: it may not be read.
    """
    real = os.path.realpath(path)
    if not any(is_within(real, root) for root in real_tops):
        raise outside()
    if real != os.path.realpath(top or "/").rstrip("/") + path[len(top) :].rstrip("/") and real != "/":
        message = "Links to folders are not followed. Name the folder to which the link leads."
        raise _unlisted("link_to_folder", message)
    return real if os.path.isdir(real) else ""  # noqa: PTH112


@contextmanager
def _opened(path: str, top: str, real_tops: Sequence[str]) -> Iterator[int]:
    folder = open_real(real_folder(path, top, real_tops) or path, os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _unlisted(code: str, message: str) -> DocumentFailed:
    return DocumentFailed(code, message, "listing")

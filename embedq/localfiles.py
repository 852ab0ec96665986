"""Local files and folders as documents: what is uploaded, and under which names."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


class BadSourceError(ValueError):
    """A source cannot be ingested. The message names it."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """One file and the id of its document.

    That is its path as it was written, if that was relative: `handbook` and `handbook/refunds.md` name one document.
    Of a path that is absolute or leads upwards it is what follows the folder in which that source lies.
    """

    id: str
    path: Path
    size_bytes: int


def local_files(sources: Iterable[Path]) -> list[LocalFile]:
    """All files of the sources in order, folders walked to the bottom.

    A file that is named twice comes once. Names that begin with a dot, links to folders and what is no regular file
    are passed over inside of folders.

    Raises:
        BadSourceError: a source cannot be read, two documents have the same id, or there are
            no files at all.
    """
    found: dict[str, LocalFile] = {}
    for source in sources:
        for file in _files(source):
            earlier = found.setdefault(file.id, file)
            if earlier.path != file.path:
                raise BadSourceError(f"{earlier.path} and {file.path} would both be the document {file.id!r}")
    if not found:
        raise BadSourceError("there are no files to ingest; names that begin with a dot are passed over")
    return list(found.values())


def _files(source: Path) -> Iterator[LocalFile]:
    top = Path(os.path.abspath(source))  # noqa: PTH100 - resolve() would follow a link, and name what it leads to
    as_written = source.parts and not source.is_absolute() and ".." not in source.parts
    base = Path(os.path.abspath("")) if as_written else top.parent  # noqa: PTH100 - as above
    if top.is_file():
        yield _file(top, base)
    elif top.is_dir():
        for path in _walk(top):
            yield _file(path, base)
    else:
        pattern = any(letter in str(source) for letter in "*?[")
        hint = "; a pattern is for what the server itself reads, as in 'file:///srv/docs/**'" if pattern else ""
        raise BadSourceError(f"{source} does not exist, or is neither a file nor a folder{hint}")


def _walk(folder: Path) -> Iterator[Path]:
    def cannot(error: OSError) -> None:
        raise BadSourceError(f"{error.filename}: {error.strerror}")

    for below, folders, names in os.walk(folder, onerror=cannot):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = (Path(below, name) for name in sorted(names) if not name.startswith("."))
        yield from (path for path in files if path.is_file())


def _file(path: Path, parent: Path) -> LocalFile:
    # A name need not be UTF-8 on this machine; an id must be.
    name = os.fsencode(path.relative_to(parent).as_posix()).decode(errors="replace")
    return LocalFile(name, path, path.stat().st_size)

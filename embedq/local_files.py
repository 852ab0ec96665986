"""Local files and folders as documents: what is uploaded, and under which names."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from embedq.errors import BadInputError


@dataclass(frozen=True, slots=True)
class LocalFile:
    """One file and the id of its document.

    The id is the path as it was written, if that was relative: `handbook` and `handbook/refunds.md` name one document.
    If the path is absolute or leads upwards, the id begins behind the folder in which the source lies.
    """

    id: str
    path: Path


def local_files(sources: Iterable[Path], include: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[LocalFile]:
    """All files of the sources in order, folders walked to the bottom.

    A file that is named twice comes once. Inside of folders, names that begin with a dot, links to folders and
    anything but regular files are passed over.

    Args:
        sources: files and folders.
        include: patterns as `is_named` reads them; none: all files.
        exclude: patterns of what is left out.

    Raises:
        BadInputError: a source cannot be read, two documents have the same id, or there are no files at all.
    """
    files: dict[str, LocalFile] = {}
    for file in (file for source in sources for file in _files(source, exclude)):
        if (include and not is_named(file.id, include)) or is_named(file.id, exclude):
            continue
        earlier = files.setdefault(file.id, file)
        if earlier.path != file.path:
            raise BadInputError(f"{earlier.path} and {file.path} would both be the document {file.id!r}")
    if not files:
        left = " that --include and --exclude leave" if include or exclude else ""
        raise BadInputError(f"there are no files{left} to ingest; names that begin with a dot are passed over")
    return list(files.values())


def is_named(document_id: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits the path, its end, or a folder on it: `*.md`, `drafts`, `drafts/*.txt`.

    `*` stands for any letters, `/` too.
    """
    parts = document_id.split("/")
    ends = range(1, len(parts) + 1)
    paths = ["/".join(parts[first:end]) for end in ends for first in range(end)] if patterns else []
    return any(fnmatchcase(path, pattern) for pattern in patterns for path in paths)


def _files(source: Path, exclude: Sequence[str]) -> Iterator[LocalFile]:
    top = Path(os.path.abspath(source))  # noqa: PTH100 - resolve() would follow a link, and name what it leads to
    as_written = source.parts and not source.is_absolute() and ".." not in source.parts
    base = Path(os.path.abspath("")) if as_written else top.parent  # noqa: PTH100 - as above
    if top.is_file():
        yield _file(top, base)
    elif top.is_dir():
        yield from _walk(top, base, exclude)
    else:
        pattern = any(letter in str(source) for letter in "*?[")
        hint = "; a pattern is for what the server itself reads, as in 'file:///srv/docs/**'" if pattern else ""
        raise BadInputError(f"{source} does not exist, or is neither a file nor a folder{hint}")


def _walk(top: Path, base: Path, exclude: Sequence[str]) -> Iterator[LocalFile]:
    def refuse(error: OSError) -> None:
        raise BadInputError(f"{error.filename}: {error.strerror}")

    for below, folders, names in os.walk(top, onerror=refuse):
        # What is left out need not be readable, and may be large.
        inner = (_file(Path(below, name), base) for name in sorted(folders) if not name.startswith("."))
        folders[:] = [folder.path.name for folder in inner if not is_named(folder.id, exclude)]
        files = (Path(below, name) for name in sorted(names) if not name.startswith("."))
        yield from (_file(path, base) for path in files if path.is_file())


def _file(path: Path, parent: Path) -> LocalFile:
    # A name need not be UTF-8 on this machine; an id must be.
    return LocalFile(os.fsencode(path.relative_to(parent).as_posix()).decode(errors="replace"), path)

"""Listing and reading a whole source, as its jobs would: each page in a source of its own, cursors through JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from tasks.documents.sources.access import SourceAccess, SourceLimits, StoredFile
from tasks.documents.sources.records_process import RecordProcesses
from tasks.documents.sources.source import FULL_PAGE, Fetched, ListedPage, PageLimits
from tasks.documents.sources.source_kinds import open_source
from tasks.documents.sources.walk import WINDOW, SortedNames
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.storage.storage import Storage

_LINES = Storage.open("memory://lines")


def pages(spec: Mapping[str, Any], access: SourceAccess) -> list[ListedPage]:
    """Every page."""
    found: list[ListedPage] = []
    cursor: Any = None
    while not found or cursor is not None:
        page = open_source(spec, access).page(cursor)
        found.append(page)
        cursor = orjson.loads(orjson.dumps(page.cursor))
        assert len(found) < 10_000
    return found


def refs_of(page: ListedPage) -> list[Document]:
    """The documents of a page."""
    return [line for line in page.documents if line.status is DocumentStatus.QUEUED]


def faults_of(page: ListedPage) -> list[Document]:
    """What a page has that is none."""
    return [line for line in page.documents if line.status is not DocumentStatus.QUEUED]


def documents(spec: Mapping[str, Any], access: SourceAccess) -> list[Document]:
    """Every document."""
    return [line for page in pages(spec, access) for line in refs_of(page)]


def faults(spec: Mapping[str, Any], access: SourceAccess) -> list[Document]:
    """Everything that is none."""
    return [line for page in pages(spec, access) for line in faults_of(page)]


def codes(spec: Mapping[str, Any], access: SourceAccess) -> dict[str, str]:
    """Codes of faults by id."""
    return {fault.id: fault.code or "" for fault in faults(spec, access)}


def contents(spec: Mapping[str, Any], access: SourceAccess) -> list[Fetched]:
    """Every document's content, read from stored lines."""
    found = []
    for page in pages(spec, access):
        write_documents(_LINES, "page", page.documents)
        lines = [line for line in read_documents(_LINES, "page") if line.is_to_read]
        found += list(open_source(spec, access).read(lines))
    return found


def texts(spec: Mapping[str, Any], access: SourceAccess) -> dict[str, str | None]:
    """Texts of records by id."""
    return {one.ref.id: one.text for one in contents(spec, access)}


def uploaded(
    tmp_path: Path,
    files: Mapping[str, bytes] | None = None,
    /,
    *,
    limit: int = 2**20,
    apart: RecordProcesses | None = None,
    page: PageLimits = FULL_PAGE,
    **more: bytes,
) -> SourceAccess:
    """Files as uploads: `a_csv=b"…"` is the file `a.csv` with the id `a_csv`."""
    storage = Storage.open(f"file://{tmp_path}/storage")
    stored = {}
    for file_id, data in {**(files or {}), **more}.items():
        storage.write(f"files/{file_id}", data)
        stored[file_id] = StoredFile(file_id, f"files/{file_id}", file_id.replace("_", ".", 1), len(data))
    return SourceAccess(storage, stored, limits=SourceLimits(limit, limit), apart=apart, page=page)


def below(folder: Path, *, limit: int = 2**20, window: int = WINDOW, **page: int) -> SourceAccess:
    """A folder as the only root. `window`: names that are kept of a folder; `page`: see `PageLimits`."""
    return SourceAccess(
        Storage.open("memory://unused"),
        roots=[str(folder)],
        limits=SourceLimits(limit, limit),
        names=SortedNames(window),
        page=PageLimits(**page),
    )


def tree(folder: Path, *names: str) -> Path:
    """Files that hold their own names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder

"""Listing and reading a whole source, as its jobs would: each page in a source of its own, cursors through JSON."""

import csv
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.document_error import DocumentError, FailureStage
from tasks.ingestion.sources import tabular
from tasks.ingestion.sources.open_source import open_source
from tasks.ingestion.sources.page import FULL_PAGE, ListedPage, PageLimits
from tasks.ingestion.sources.source import Fetched, SourceAccess
from tasks.records.documents import Document, DocumentStatus, read_documents, write_documents
from tasks.records.files import FileRecord, Purpose
from tasks.storage.storage import Storage

T = TypeVar("T")
_LINES = Storage.open("memory://lines")
_NUMBERS = itertools.count()


def ask(
    header: Mapping[str, Any], body: bytes, read: Callable[[dict[str, Any], bytes], T], *, stage: FailureStage
) -> T:
    """What the sandbox answers, in this process."""
    assert stage == "reading"
    request = orjson.loads(orjson.dumps(header))
    answer, data = tabular.HANDLERS[request["type"]](request, body)
    return read(orjson.loads(orjson.dumps(answer)), data)


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


def lines_of(page: ListedPage) -> list[Document]:
    """The lines of a page that can be read."""
    return [line for line in page.lines if line.status is DocumentStatus.QUEUED]


def faults_of(page: ListedPage) -> list[Document]:
    """What a page has that cannot be."""
    return [line for line in page.lines if line.status is not DocumentStatus.QUEUED]


def fetched(spec: Mapping[str, Any], access: SourceAccess) -> list[Fetched]:
    """Every document, read from stored lines, and all that is none, in order."""
    found: list[Fetched] = []
    for page in pages(spec, access):
        write_documents(_LINES, "page", page.lines)
        lines = list(read_documents(_LINES, "page"))
        found += open_source(spec, access).read([line for line in lines if line.is_to_read])
        for line in lines:
            if not line.is_to_read:
                error = DocumentError(line.code or "", line.message or "", "listing")
                found.append(Fetched(line, "", error=error))
    return found


def contents(spec: Mapping[str, Any], access: SourceAccess) -> list[Fetched]:
    """Every document's content."""
    return [one for one in fetched(spec, access) if one.error is None]


def documents(spec: Mapping[str, Any], access: SourceAccess) -> list[Document]:
    """The line of every document."""
    return [one.ref for one in contents(spec, access)]


def faults(spec: Mapping[str, Any], access: SourceAccess) -> list[Fetched]:
    """Everything that is none."""
    return [one for one in fetched(spec, access) if one.error is not None]


def codes(spec: Mapping[str, Any], access: SourceAccess) -> dict[str, str]:
    """Codes of faults by id."""
    return {one.ref.id: one.error.code for one in faults(spec, access) if one.error}


def texts(spec: Mapping[str, Any], access: SourceAccess) -> dict[str, str | None]:
    """Texts of records by id."""
    return {one.ref.id: one.text for one in contents(spec, access)}


def uploaded(
    tmp_path: Path,
    files: Mapping[str, bytes] | None = None,
    /,
    *,
    limit: int = 2**20,
    page: PageLimits = FULL_PAGE,
    **more: bytes,
) -> SourceAccess:
    """Files as uploads: `a_csv=b"…"` is the file `a.csv` with the id `a_csv`."""
    storage = Storage.open(f"file://{tmp_path}/storage")
    stored = {}
    for file_id, data in {**(files or {}), **more}.items():
        # A copy of what was read last is kept, and what is stored under a name never changes.
        name = f"files/{file_id}.{next(_NUMBERS)}" if file_id.endswith("parquet") else f"files/{file_id}"
        storage.write(name, data)
        stored[file_id] = FileRecord(
            id=file_id,
            owner="owner",
            filename=file_id.replace("_", ".", 1),
            purpose=Purpose.USER_DATA,
            size_bytes=len(data),
            created_ms=0,
            stored=name,
        )
    return SourceAccess(storage, ask, stored, max_document_bytes=limit, max_record_bytes=limit, page=page)


def below(folder: Path | str, *, limit: int = 2**20, **page: int) -> SourceAccess:
    """A folder or bucket as the only root. `page`: see `PageLimits`."""
    return SourceAccess(
        Storage.open("memory://unused"),
        ask,
        roots=[str(folder)],
        max_document_bytes=limit,
        max_record_bytes=limit,
        page=PageLimits(**page),
    )


def tree(folder: Path, *names: str) -> Path:
    """Files that hold their own names."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def jsonl(*records: Any) -> bytes:
    """One line each."""
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def table(rows: list[list[str]], encoding: str = "utf-8", delimiter: str = ",") -> bytes:
    """CSV, quoted where needed."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode(encoding)


def parquet(rows: Sequence[Mapping[str, Any]] | pa.Table, row_group: int = 1000) -> bytes:
    """A file with row groups of that many rows."""
    out = io.BytesIO()
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows])
    pq.write_table(table, out, row_group_size=row_group)
    return out.getvalue()


def files(*ids: str, **more: Any) -> dict[str, Any]:
    """A request's source."""
    return {"files": [*ids], **more}

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
from tasks.records.documents import Document, DocumentStatus
from tasks.records.files import FileRecord, Purpose
from tasks.storage.storage import Storage

T = TypeVar("T")
STORAGE = Storage.open("memory://sources")
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
    found: list[ListedPage] = []
    cursor: Any = None
    while not found or cursor is not None:
        page = open_source(spec, access).page(cursor)
        found.append(page)
        cursor = orjson.loads(orjson.dumps(page.cursor))
    return found


def lines_of(page: ListedPage) -> list[Document]:
    return [line for line in page.lines if line.status is DocumentStatus.QUEUED]


def fetched(spec: Mapping[str, Any], access: SourceAccess) -> list[Fetched]:
    found: list[Fetched] = []
    for page in pages(spec, access):
        found += open_source(spec, access).read([line for line in page.lines if line.is_to_read])
        failed = [line for line in page.lines if not line.is_to_read]
        found += [Fetched(one, "", error=DocumentError(one.code or "", one.message or "", "listing")) for one in failed]
    return found


def outcome(one: Fetched) -> str:
    """The text of a document, or its code in brackets."""
    return f"<{one.error.code}>" if one.error else (one.text or (one.data or b"").decode())


def outcomes(spec: Mapping[str, Any], access: SourceAccess) -> dict[str, str]:
    return {one.ref.id: outcome(one) for one in fetched(spec, access)}


def uploaded(files: Mapping[str, bytes], *, limit: int = 2**20, page: PageLimits = FULL_PAGE) -> SourceAccess:
    stored = {}
    for name, data in files.items():
        # A copy of what was read last is kept, and what is stored under a name never changes.
        at = f"files/{next(_NUMBERS)}"
        STORAGE.write(at, data)
        told = {"id": name, "filename": name, "size_bytes": len(data), "stored": at, "created_ms": 0}
        stored[name] = FileRecord.model_validate({"owner": "owner", "purpose": Purpose.USER_DATA, **told})
    return SourceAccess(STORAGE, ask, stored, max_document_bytes=limit, max_record_bytes=limit, page=page)


def read(files: Mapping[str, bytes], *, limit: int = 2**20, **spec: Any) -> dict[str, str]:
    return outcomes({"files": [*files], **spec}, uploaded(files, limit=limit))


def below(*roots: Path | str, limit: int = 2**20, **page: int) -> SourceAccess:
    """Folders or buckets as the only roots. `page`: see `PageLimits`."""
    tops, sizes = [str(root) for root in roots], PageLimits(**page)
    return SourceAccess(STORAGE, ask, roots=tops, max_document_bytes=limit, max_record_bytes=limit, page=sizes)


def tree(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def jsonl(*records: Any) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def table(rows: list[list[str]], encoding: str = "utf-8", delimiter: str = ",") -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue().encode(encoding)


def parquet(rows: Sequence[Mapping[str, Any]] | pa.Table, row_group: int = 1000) -> bytes:
    out = io.BytesIO()
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([*rows])
    pq.write_table(table, out, row_group_size=row_group)
    return out.getvalue()

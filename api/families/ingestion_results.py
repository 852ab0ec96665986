"""A page of an ingestion's documents: what became of them is read from the storage, page of the pipeline by page."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Self

from starlette.datastructures import QueryParams

from api.parts import Services
from api.request.paging import read_limit
from tasks.errors import InvalidValue, NotStored
from tasks.records.datasets import Catalog, DatasetPart, present
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_listed, read_outcomes
from tasks.records.ingestion_operations import read_closed
from tasks.records.ingestions import ClosedPage, Ingestion, PageStage
from tasks.storage.storage import Storage

FILTERS = ("loaded", "unchanged", "failed", "in_progress")
MAX_READ = 20
"""Stored objects that are read for one answer, which is shorter where they hold little of what is asked for."""
_CLOSED_AT_ONCE = 500
_MAX_LOOKS = 40
_BEHIND = 999_999_999
"""Behind every line of a page."""
_Read = Callable[[Storage], Iterable[DocumentOutcome]]
_CURSOR = re.compile(r"(\d{1,9})-(\d{1,9})")
_IN_FLIGHT = {
    PageStage.PARSE: DocumentStatus.PARSING,
    PageStage.EMBED: DocumentStatus.EMBEDDING,
    PageStage.READY: DocumentStatus.LOADING,
    PageStage.LOADING: DocumentStatus.LOADING,
}


@dataclass(frozen=True, slots=True)
class DocumentQuery:
    """What is asked for: a status or all (""), from a line of a page on."""

    status: str
    page: int
    line: int
    limit: int

    @classmethod
    def from_query(cls, parameters: QueryParams) -> Self:
        """From the query string; empty values count as absent.

        Raises:
            InvalidValue: a value that cannot be, with its name.
        """
        status, after = parameters.get("filter", ""), parameters.get("after", "")
        if status and status not in FILTERS:
            raise InvalidValue(f"filter must be one of {', '.join(FILTERS)}.", param="filter")
        cursor = _CURSOR.fullmatch(after) if after.isascii() else None
        if after and cursor is None:
            raise InvalidValue("after must be the last_id of the page before.", param="after")
        page, line = (int(cursor[1]), int(cursor[2]) + 1) if cursor else (0, 0)
        return cls(status, page, line, read_limit(parameters))


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Documents in the order of the source. `until`: the cursor behind the last one; None when there is nothing."""

    documents: list[dict[str, Any]]
    until: str | None
    more: bool


async def read_documents(services: Services, ingestion: Ingestion, query: DocumentQuery) -> DocumentPage:
    """The page; it may be shorter than asked for, even empty, and say that there are more.

    Raises:
        StorageUnavailable, RedisUnavailable: no answer.
    """
    storage = await services.storage.open()
    documents: list[dict[str, Any]] = []
    until: str | None = None
    reads = 0
    page, line = query.page, query.line
    for _ in range(_MAX_LOOKS):
        if page >= ingestion.next_page:
            return DocumentPage(documents, until, False)
        closed = {c.number: c for c in await services.ledger.run(read_closed(ingestion.id, page, _CLOSED_AT_ONCE))}
        for number in range(page, min(page + _CLOSED_AT_ONCE, ingestion.next_page)):
            read = _reader(ingestion, number, closed.get(number), query.status)
            if read is not None:
                room = query.limit - len(documents)
                rows = await services.storage.run(_some, storage, read, query.status, line, room + 1)
                documents += [row for _, row in rows[:room]]
                until = f"{number}-{rows[min(len(rows), room) - 1][0]}" if rows[:room] else f"{number}-{_BEHIND}"
                reads += 1
                if len(rows) > room:
                    return DocumentPage(documents, until, True)
                if reads == MAX_READ or len(documents) == query.limit:
                    return DocumentPage(documents, until, number + 1 < ingestion.next_page)
            line = 0
        page += _CLOSED_AT_ONCE
    return DocumentPage(documents, f"{page - 1}-{_BEHIND}", True)


def _reader(ingestion: Ingestion, number: int, closed: ClosedPage | None, status: str) -> _Read | None:
    """What reads a page's documents; None where none of them can be what is asked for."""
    flying = ingestion.pages.get(number)
    if flying is not None:
        if status not in {"", "in_progress"}:
            return None
        stage = _IN_FLIGHT[flying.stage]
        return lambda storage: (
            DocumentOutcome(name, uri, stage) for name, uri in read_listed(storage, flying.manifest)
        )
    if closed is None or not _may_hold(closed, status):
        return None
    return lambda storage: read_outcomes(storage, closed.stored)


def _may_hold(closed: ClosedPage, status: str) -> bool:
    return bool({"": 1, "loaded": closed.loaded, "unchanged": closed.unchanged, "failed": closed.failed}.get(status))


def _some(storage: Storage, read: _Read, status: str, first: int, limit: int) -> list[tuple[int, dict[str, Any]]]:
    def fitting() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, outcome in enumerate(read(storage)):
            if number >= first and status in {"", "in_progress", outcome.status}:
                yield number, document_json(outcome)

    try:
        return list(islice(fitting(), limit))
    except NotStored:
        return []  # closed again since the ledger was asked, or past its retention


def document_json(outcome: DocumentOutcome) -> dict[str, Any]:
    """One document."""
    error = {"code": outcome.code, "message": outcome.message} if outcome.code else None
    return {
        "id": outcome.id,
        "object": "ingestion.document",
        "source_uri": outcome.uri,
        "status": outcome.status.value,
        "stage": outcome.stage,
        "last_error": error,
        "content_hash": outcome.content_hash or None,
        "chunks": outcome.chunks,
        "tokens": outcome.tokens,
    }


# The Parquet files of an ingestion's dataset, as the dataset is now.

_TAG_CHARS = 32


def dataset_of(ingestion: Ingestion) -> str:
    """The name of its dataset.

    Raises:
        InvalidValue: its sink is none.
    """
    sink = ingestion.spec["sink"]
    if sink["type"] != "parquet":
        raise InvalidValue(f"The vectors of this ingestion are in the table {sink.get('table')} of its sink.")
    return str(sink.get("dataset") or ingestion.id)


async def read_output(services: Services, ingestion: Ingestion) -> Catalog:
    """The dataset as it is now: one version, whole; one without parts before anything was loaded, or once deleted.

    Raises:
        InvalidValue: the sink of this ingestion is none.
        StorageUnavailable: no answer.
    """
    storage = await services.storage.open()
    return (await services.storage.run(present, storage, ingestion.owner, dataset_of(ingestion))).catalog


def output_json(ingestion: Ingestion, catalog: Catalog) -> dict[str, Any]:
    """The list of parts."""
    parts = catalog.listed
    return {
        "object": "list",
        "dataset": catalog.dataset,
        "dataset_id": catalog.id if catalog.exists else None,
        "version": catalog.version,
        "dimension": catalog.dimension or None,
        "rows": sum(part.rows for part in parts),
        "data": [
            {
                "object": "ingestion.part",
                "name": part.name,
                "rows": part.rows,
                "documents": part.documents,
                "bytes": part.size_bytes,
                "etag": part_tag(part),
                "url": f"/v1/ingestions/{ingestion.id}/output/{part.name}",
            }
            for part in parts
        ],
    }


def part_tag(part: DatasetPart) -> str:
    """Never the same for other bytes: stored names are never used twice."""
    return sha256(f"{part.stored} {part.size_bytes}".encode()).hexdigest()[:_TAG_CHARS]

"""A page of an ingestion's documents: what became of them is read from the storage, page of the pipeline by page."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from api.async_storage import AsyncStorage
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.ingestions import IngestionDocument
from tasks.errors import Invalid, NotStored
from tasks.ledger.client import AsyncLedger
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_listed, read_outcomes
from tasks.records.ingestion_operations import read_closed
from tasks.records.ingestions import ClosedPage, Ingestion, PageInFlight, PageStage
from tasks.storage.storage import Storage

_LOOK, _READ = 500, 20
"""Pages that one answer looks at, and those that it reads: it is shorter where they hold little of what is wanted."""
_BEHIND = 999_999_999
"""Behind every line of a page."""
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_IN_FLIGHT = {
    PageStage.PARSE: DocumentStatus.PARSING,
    PageStage.EMBED: DocumentStatus.EMBEDDING,
    PageStage.READY: DocumentStatus.LOADING,
    PageStage.LOADING: DocumentStatus.LOADING,
}
_Page: TypeAlias = ClosedPage | PageInFlight


async def read_documents(
    ledger: AsyncLedger, storage: AsyncStorage, ingestion: Ingestion, status: str | None, place: PagePlace
) -> Page[IngestionDocument]:
    """Documents in this state, or all, in the order of the source; maybe fewer than asked for, and then it says so.

    Raises:
        Invalid: the page begins behind no place.
        StorageUnavailable, RedisUnavailable: no answer.
    """
    cursor = _CURSOR.fullmatch(place.after or "0-0")
    if cursor is None:
        raise Invalid("invalid_value", "after must be the last_id of the page before.", param="after")
    number, line = int(cursor[1]), int(cursor[2]) + 1 if place.after else 0
    end, reads = min(ingestion.next_page, number + _LOOK), 0
    closed = await ledger.run(read_closed(ingestion.id, number, _LOOK))
    pages: Mapping[int, _Page] = {**{page.number: page for page in closed}, **ingestion.pages}
    found = list[tuple[str, DocumentOutcome]]()
    while number < end and reads < _READ and len(found) <= place.limit:
        page = pages.get(number)
        if page is not None and _may_have(page, status):
            reads += 1
            rows = await storage.run(_some, page, status, line, place.limit + 1 - len(found))
            found += [(f"{number}-{row}", outcome) for row, outcome in rows]
        number, line = number + 1, 0
    shown, more = found[: place.limit], len(found) > place.limit or number < ingestion.next_page
    until = f"{number - 1}-{_BEHIND}" if more and len(found) <= place.limit else None
    documents = [IngestionDocument.model_validate(outcome) for _, outcome in shown]
    return Page[IngestionDocument].of(documents, more=more, until=until or (shown[-1][0] if shown else place.after))


def _may_have(page: _Page, status: str | None) -> bool:
    if isinstance(page, ClosedPage):
        return status is None or bool(getattr(page, status, 0))
    return status in {None, "in_progress"}


def _some(
    storage: Storage, page: _Page, status: str | None, first: int, limit: int
) -> list[tuple[int, DocumentOutcome]]:
    try:
        fitting = (
            (number, outcome)
            for number, outcome in enumerate(_documents(storage, page))
            if number >= first and status in {None, "in_progress", outcome.status}
        )
        return list(islice(fitting, limit))
    except NotStored:
        return []  # closed again since the ledger was asked, or past its retention


def _documents(storage: Storage, page: _Page) -> Iterable[DocumentOutcome]:
    if isinstance(page, ClosedPage):
        return read_outcomes(storage, page.stored)
    stage = _IN_FLIGHT[page.stage]
    return (DocumentOutcome(name, uri, stage) for name, uri in read_listed(storage, page.manifest))

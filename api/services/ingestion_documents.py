"""A page of an ingestion's documents: what became of them is read from the storage, page of the pipeline by page."""

import re
from collections.abc import Callable, Iterable
from itertools import islice

from api.async_storage import AsyncStorage
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.ingestions import IngestionDocument
from tasks.errors import Invalid, NotStored
from tasks.ledger import AsyncLedger
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_listed, read_outcomes
from tasks.records.ingestion_operations import read_closed
from tasks.records.ingestions import ClosedPage, Ingestion, PageStage
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
_Read = Callable[[Storage], Iterable[DocumentOutcome]]


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
    closed = {page.number: page for page in await ledger.run(read_closed(ingestion.id, number, _LOOK))}
    found = list[tuple[str, DocumentOutcome]]()
    while number < end and reads < _READ and len(found) <= place.limit:
        read = _reader(ingestion, number, closed.get(number), status)
        if read is not None:
            reads += 1
            rows = await storage.run(_some, read, status, line, place.limit + 1 - len(found))
            found += [(f"{number}-{row}", outcome) for row, outcome in rows]
        number, line = number + 1, 0
    shown, more = found[: place.limit], len(found) > place.limit or number < ingestion.next_page
    until = f"{number - 1}-{_BEHIND}" if more and len(found) <= place.limit else None
    documents = [IngestionDocument.model_validate(outcome) for _, outcome in shown]
    return Page[IngestionDocument].of(documents, more=more, until=until or (shown[-1][0] if shown else place.after))


def _reader(ingestion: Ingestion, number: int, closed: ClosedPage | None, status: str | None) -> _Read | None:
    """What reads a page's documents; None where none of them can be what is asked for."""
    flying = ingestion.pages.get(number)
    if flying is not None:
        stage = _IN_FLIGHT[flying.stage]
        if status in {None, "in_progress"}:
            return lambda storage: (
                DocumentOutcome(name, uri, stage) for name, uri in read_listed(storage, flying.manifest)
            )
    elif closed is not None and (status is None or getattr(closed, status, False)):
        return lambda storage: read_outcomes(storage, closed.stored)
    return None


def _some(
    storage: Storage, read: _Read, status: str | None, first: int, limit: int
) -> list[tuple[int, DocumentOutcome]]:
    try:
        fitting = (
            (number, outcome)
            for number, outcome in enumerate(read(storage))
            if number >= first and status in {None, "in_progress", outcome.status}
        )
        return list(islice(fitting, limit))
    except NotStored:
        return []  # closed again since the ledger was asked, or past its retention

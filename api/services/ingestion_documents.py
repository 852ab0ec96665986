"""A page of an ingestion's documents: what became of them is read from the storage, page of the pipeline by page."""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TypeAlias

from api.async_storage import AsyncStorage
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.ingestions import DocumentGroup, DocumentGroups, IngestionDocument
from tasks.errors import Invalid, NotStored
from tasks.ledger.client import AsyncLedger
from tasks.records import documents
from tasks.records.documents import Document, DocumentStatus
from tasks.records.ingestions import Ingestion
from tasks.records.jobs import DonePage, Stage, read_done
from tasks.records.jobs import Page as OpenPage
from tasks.storage.storage import Storage

_LOOK, _READ = 500, 20
"""Pages that one answer looks at, and those that it reads: it is shorter where they hold little of what is wanted."""
_BEHIND = 999_999_999
"""Behind every line of a page."""
_GROUPED, _LOOKS, _NAMES = 1000, 5, 5
"""Documents of one look, looks of one answer, and names of a group."""
_AGAIN = {"encoding_failed", "internal_error", "model_changed", "not_embedded", "not_stored", "worker_lost"}
"""What the same bytes may not meet another time."""
_CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_IN_FLIGHT = {
    Stage.PARSE: DocumentStatus.PARSING,
    Stage.EMBED: DocumentStatus.EMBEDDING,
    Stage.LOAD: DocumentStatus.LOADING,
}
_Page: TypeAlias = DonePage | OpenPage


async def read_documents(
    ledger: AsyncLedger, storage: AsyncStorage, ingestion: Ingestion, status: str | None, place: PagePlace
) -> Page[IngestionDocument]:
    """Documents in this state, or with warnings, or all, in the order of the source.

    Maybe fewer than asked for, and then it says so.

    Raises:
        Invalid: the page begins behind no place.
        StorageUnavailable, RedisUnavailable: no answer.
    """
    cursor = _CURSOR.fullmatch(place.after or "0-0")
    if cursor is None:
        raise Invalid("invalid_value", "after must be the last_id of the page before.", param="after")
    number, line = int(cursor[1]), int(cursor[2]) + 1 if place.after else 0
    last = ingestion.record.next_page
    end, reads = min(last, number + _LOOK), 0
    done = await ledger.run(read_done(ingestion.id, ingestion.record.KIND, range(number, end)))
    pages: Mapping[int, _Page] = {**done, **({} if ingestion.status.terminal else ingestion.pages)}
    found = list[tuple[str, Document]]()
    while number < end and reads < _READ and len(found) <= place.limit:
        page = pages.get(number)
        if page is not None and _may_have(page, status):
            reads += 1
            rows = await storage.run(_some, page, status, line, place.limit + 1 - len(found))
            found += [(f"{number}-{row}", outcome) for row, outcome in rows]
        number, line = number + 1, 0
    shown, more = found[: place.limit], len(found) > place.limit or number < last
    until = f"{number - 1}-{_BEHIND}" if more and len(found) <= place.limit else None
    told = [IngestionDocument.model_validate(document) for _, document in shown]
    return Page[IngestionDocument].of(told, more=more, until=until or (shown[-1][0] if shown else place.after))


async def group_documents(
    ledger: AsyncLedger, storage: AsyncStorage, ingestion: Ingestion, status: str
) -> DocumentGroups:
    """Failed documents, or those with warnings, by code: of all, or of the first few thousand. Raises as above."""
    groups = dict[str, DocumentGroup]()
    place, more = PagePlace(None, _GROUPED), True
    for _ in range(_LOOKS):
        page = await read_documents(ledger, storage, ingestion, status, place)
        for document in page.data:
            _count(groups, document)
        place, more = PagePlace(page.last_id, _GROUPED), page.has_more
        if not more:
            break
    found = sorted(groups.values(), key=lambda group: -group.count)
    return DocumentGroups(data=found, complete=not more)


def _count(groups: dict[str, DocumentGroup], document: IngestionDocument) -> None:
    error = document.last_error
    told = document.warnings if error is None else [error]
    for code, message in {one.code: one.message for one in told}.items():
        again = error is not None and (document.stage == "loading" or code in _AGAIN)
        new = DocumentGroup(code=code, message=message, count=0, retryable=again, names=[])
        group = groups.setdefault(code, new)
        group.count += document.documents
        if len(group.names) < _NAMES:
            group.names.append(document.id)


def _may_have(page: _Page, status: str | None) -> bool:
    if isinstance(page, DonePage):
        counted = "loaded" if status == DocumentStatus.COUNTED else status
        return status is None or bool(getattr(page.counts, counted or "", 0))
    return status in {None, "in_progress"} or page.was is not None


def _some(storage: Storage, page: _Page, status: str | None, first: int, limit: int) -> list[tuple[int, Document]]:
    try:
        fitting = (
            (number, document)
            for number, document in enumerate(_documents(storage, page))
            if number >= first and _fits(document, status)
        )
        return list(islice(fitting, limit))
    except NotStored:
        return []  # done since the ledger was asked, or past its retention


def _fits(document: Document, status: str | None) -> bool:
    if status == "warned":
        return bool(document.warnings)
    return status in {None, document.status} or (status == "in_progress" and document.status in _IN_FLIGHT.values())


def _documents(storage: Storage, page: _Page) -> Iterable[Document]:
    if isinstance(page, DonePage):
        return documents.read_documents(storage, page.obj)
    status = _IN_FLIGHT[page.at]
    lines = documents.read_documents(storage, page.obj or page.src)  # what PARSE knows; of a range nobody knows yet
    return (line if line.ended else line.as_listed()._replace(status=status) for line in lines if not line.records)

"""Listing what failed: failed documents leave the pages in which they failed, and make up new ones."""

from typing import Any

import orjson

from tasks.documents.context import JobContext
from tasks.documents.ingestions.manifest import write_manifest
from tasks.documents.sources.types import DocumentRef
from tasks.ledger.ingestion_operations import read_closed
from tasks.ledger.ingestion_outcomes import DocumentOutcome, DocumentStatus, read_outcomes
from tasks.ledger.ingestions import ClosedPage, Ingestion

_LOOK = 1024
"""Pages whose numbers of failed documents are looked at in one run of the job."""
_PAGES = 16


def relist(context: JobContext, ingestion: Ingestion) -> bytes:
    """The outcome of a listing as JSON, see `list_page`, with `closed`: pages as they are without what is tried again.

    `chunks` and `tokens` were counted of that and will be counted once more.
    What was no document to begin with stays where it is.

    Raises:
        NotStored: what became of the documents is gone.
        Unavailable: it cannot be read now.
    """
    assert ingestion.cursor is not None  # noqa: S101 - for the type checker: the caller has looked
    first: int = ingestion.cursor["retry"]
    # Pages made by this very listing are behind `until`: what fails a second time is not tried for ever.
    until: int = ingestion.cursor.get("until", ingestion.next_page)
    pages: list[list[int]] = []
    closed: list[list[Any]] = []
    chunks = tokens = 0
    seen = context.ledger.run(read_closed(ingestion.id, first, min(_LOOK, until - first)))
    failing = [page for page in seen if page.failed]
    for page in failing[:_PAGES]:
        context.progress()
        tried = _again(context, page)
        refs = [DocumentRef.from_json(each.ref) for each in tried if each.ref is not None]
        if not refs:
            continue
        chunks, tokens = chunks + sum(each.chunks for each in tried), tokens + sum(each.tokens for each in tried)
        name = ingestion.manifest_name(ingestion.next_page + len(pages), context.fence)
        pages.append([write_manifest(context.storage, name, iter(refs)), 0])
        closed.append(_rewritten(context, ingestion, page, len(refs)))
    then = failing[_PAGES].number if len(failing) > _PAGES else first + _LOOK
    cursor = {"retry": then, "until": until} if then < until else None
    counted = {"first": ingestion.next_page, "chunks": chunks, "tokens": tokens}
    return orjson.dumps({"fence": context.fence, "pages": pages, "closed": closed, "cursor": cursor, **counted})


def _again(context: JobContext, page: ClosedPage) -> list[DocumentOutcome]:
    return [each for each in read_outcomes(context.storage, page.stored) if _tried_again(each)]


def _tried_again(outcome: DocumentOutcome) -> bool:
    return outcome.status is DocumentStatus.FAILED and outcome.ref is not None


def _rewritten(context: JobContext, ingestion: Ingestion, page: ClosedPage, gone: int) -> list[Any]:
    name = ingestion.outcomes_name(page.number, context.fence)
    with context.storage.writing(name) as file:
        for outcome in read_outcomes(context.storage, page.stored):
            if not _tried_again(outcome):
                file.write(outcome.to_line())
    return [page.number, name, page.loaded, page.unchanged, page.failed - gone]

"""The job that lists the next pages of a source, or of what failed before, and writes their manifests."""

import time
from contextlib import closing
from itertools import chain
from typing import Any

import orjson

from tasks.documents.context import JobContext
from tasks.documents.ingestions.fingerprint import stamp
from tasks.documents.ingestions.job_calls import GONE, find, patiently
from tasks.documents.ingestions.listed_ids import ListedIds
from tasks.documents.ingestions.manifest import write_manifest
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sources.source import DocumentRef
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_outcomes
from tasks.records.ingestion_operations import read_closed
from tasks.records.ingestions import ClosedPage, Ingestion

# Listing what failed: failed documents leave the pages in which they failed, and make up new ones.

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


PAGES = 16
"""Of one listing, at most."""
_ENOUGH_S = 2.0
"""After this time it leaves the rest to the next listing: parsing waits in the same queue."""


def list_page(context: JobContext, job: str, tools: Tools) -> bytes:
    """The outcome as JSON: `fence`, `first`, `pages`, `cursor` and `ids`.

    `fence` is that of the manifests, `first` the number of the first page, `pages` are numbers of documents and bytes
    of each, `cursor` is null at the end, `ids` is the stored name of the ids listed so far, "" where no listing
    comes after this one.

    Raises:
        SourceFailed: it can never be listed.
        SinkRefused, SinkDimensionMismatch: the sink can never take what it holds.
        RedisUnavailable: it cannot be listed now.
    """
    ingestion, number = find(context, job)
    if ingestion is None or ingestion.list_number != number:
        return GONE
    return patiently(context, ingestion, "list", lambda: _list(context, ingestion, tools))


def _list(context: JobContext, ingestion: Ingestion, tools: Tools) -> bytes:
    if ingestion.cursor is not None and "retry" in ingestion.cursor:
        return relist(context, ingestion)
    source = tools.source(context, ingestion)
    if ingestion.cursor is None and not ingestion.dry_run:  # what is wrong with it should not show after the embedding
        with closing(tools.sink(context, ingestion)) as sink:
            sink.prepare(stamp(ingestion), context.progress)
    cursor = ingestion.cursor
    ids = ListedIds(context, ingestion)
    pages: list[list[int]] = []
    began = time.monotonic()
    while True:
        context.progress()
        listed = source.page(cursor)
        cursor = listed.cursor
        if listed.documents or listed.faults:
            number = ingestion.next_page + len(pages)
            entries = chain(ids.admitted(listed.documents, number), listed.faults)
            count = write_manifest(context.storage, ingestion.manifest_name(number, context.fence), entries)
            pages.append([count, listed.size_bytes])
        if cursor is None or len(pages) >= PAGES or time.monotonic() - began > _ENOUGH_S:
            known = ids.written() if cursor is not None else ""
            found = {"fence": context.fence, "first": ingestion.next_page, "pages": pages, "cursor": cursor}
            return orjson.dumps(found | {"ids": known})

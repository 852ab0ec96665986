"""Listing: one job after the other writes the manifests of the next pages, ahead of parsing.

What the job leaves makes its pages wait. The step enqueues the next listing, or once more one that came to nothing.
"""

import time
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from tasks.documents.context import JobContext, StepContext
from tasks.documents.ingestions import ending
from tasks.documents.ingestions.fingerprint import stamp
from tasks.documents.ingestions.job_tasks import again, enqueue_job, error_of, find, patiently
from tasks.documents.ingestions.listed_ids import ListedIds
from tasks.documents.ingestions.manifest import write_manifest
from tasks.documents.ingestions.outcomes import GONE, as_outcome
from tasks.documents.ingestions.tools import Tools
from tasks.documents.sources.source import DocumentRef
from tasks.records.document_outcomes import DocumentOutcome, DocumentStatus, read_outcomes
from tasks.records.ingestion_operations import Move, read_closed
from tasks.records.ingestions import ClosedPage, Ingestion, IngestionStatus, WaitingPage

_IN_PROGRESS = (IngestionStatus.IN_PROGRESS,)


def step(context: StepContext, ingestion: Ingestion) -> None:
    """Enqueues the next listing if there is none, and looks at one that has ended without taking in anything."""
    number = ingestion.list_number
    if ingestion.listing_complete:
        return
    if ingestion.list_state is None:
        if ingestion.waiting_pages < context.pace.waiting:
            enqueue_job(context, ingestion, "list", number, Move(_IN_PROGRESS, equal={"list_number": number}))
    elif ingestion.list_state.terminal:
        error = error_of(context, ingestion, "list", number)
        if error is not None and not again(context, ingestion, "list", number, error):
            ending.stop(context, ingestion, ending.fault_of(error))


@dataclass(frozen=True, slots=True)
class Listing:
    """What one job has listed.

    Attributes:
        pages: numbers of documents and bytes of each page.
        cursor: where the next listing begins; None at the end.
        ids: stored name of the ids listed so far; "" where no listing comes after this one.
        closed: of a listing of what failed before: pages as they are without what is tried again; None: of a source.
        chunks, tokens: likewise, counted of what is tried again: they will be counted once more.
    """

    pages: list[tuple[int, int]]
    cursor: dict[str, Any] | None
    ids: str = ""
    closed: list[ClosedPage] | None = None
    chunks: int = 0
    tokens: int = 0


def list_pages(context: JobContext, job: str, tools: Tools) -> bytes:
    """Lists the next pages of a source, or of what failed before.

    Raises:
        SourceFailed: it can never be listed.
        Invalid: the sink can never take what it holds.
        NotStored: what became of the documents that are tried again is gone.
        RedisUnavailable: it cannot be listed now.
    """
    ingestion, number = find(context, job)
    if ingestion is None or ingestion.list_number != number:
        return GONE

    def work() -> bytes:
        retries = ingestion.cursor is not None and "retry" in ingestion.cursor
        listing = _list_failed(context, ingestion) if retries else _list_source(context, ingestion, tools)
        return _listed(context, ingestion, listing)

    return patiently(context, ingestion, "list", work)


def _list_source(context: JobContext, ingestion: Ingestion, tools: Tools) -> Listing:
    source = tools.source(context, ingestion)
    if ingestion.cursor is None and not ingestion.dry_run:  # what is wrong with it should not show after the embedding
        with closing(tools.sink(context, ingestion)) as sink:
            sink.prepare(stamp(ingestion), context.progress)
    cursor = ingestion.cursor
    ids = ListedIds(context, ingestion)
    pages: list[tuple[int, int]] = []
    began = time.monotonic()
    while True:
        context.progress()
        listed = source.page(cursor)
        cursor = listed.cursor
        if listed.documents or listed.faults:
            number = ingestion.next_page + len(pages)
            entries = chain(ids.admitted(listed.documents, number), listed.faults)
            count = write_manifest(context.storage, ingestion.manifest_name(number, context.fence), entries)
            pages.append((count, listed.size_bytes))
        enough = len(pages) >= context.pace.listing_pages or time.monotonic() - began > context.pace.listing_s
        if cursor is None or enough:
            return Listing(
                pages, dict(cursor) if cursor is not None else None, ids.written() if cursor is not None else ""
            )


def _listed(context: JobContext, ingestion: Ingestion, listing: Listing) -> bytes:
    """The outcome of the job: its pages wait, and the listing goes on."""
    pages = [
        WaitingPage(ingestion.next_page + at, context.fence, documents, size_bytes)
        for at, (documents, size_bytes) in enumerate(listing.pages)
    ]
    move = Move(
        only_from=_IN_PROGRESS,
        equal={"list_number": ingestion.list_number, "next_page": ingestion.next_page},
        set=_fields(ingestion, listing),
        unset=_ended_fields(listing),
        add=_counts(listing),
        wait=pages,
        close=listing.closed or (),
    )
    return as_outcome(move)


def _fields(ingestion: Ingestion, listing: Listing) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {
        "list_number": ingestion.list_number + 1,
        "next_page": ingestion.next_page + len(listing.pages),
    }
    if listing.cursor is None:
        fields["listing_complete"] = "1"
    else:
        fields["cursor"] = orjson.dumps(listing.cursor).decode()
    if listing.ids:
        fields["ids"] = listing.ids
    return fields


def _ended_fields(listing: Listing) -> list[str]:
    retries = listing.closed is not None and any(documents for documents, _ in listing.pages)
    return [*(["cursor"] if listing.cursor is None else []), *(["s0", "s1"] if retries else [])]


def _counts(listing: Listing) -> dict[str, int]:
    documents = sum(documents for documents, _ in listing.pages)
    retries = documents if listing.closed is not None else 0  # they have been counted, and as failed
    return {
        "documents": documents - retries,
        "failed": -retries,
        "chunks": -listing.chunks,
        "chunks_embedded": -listing.chunks,
        "chunk_tokens": -listing.tokens,
        "bytes": sum(size_bytes for _, size_bytes in listing.pages),
    }


# Listing what failed: failed documents leave the pages in which they failed, and make up new ones.

_LOOK = 1024
"""Pages whose numbers of failed documents are looked at in one run of the job."""
_PAGES = 16


def _list_failed(context: JobContext, ingestion: Ingestion) -> Listing:
    """What was no document to begin with stays where it is."""
    assert ingestion.cursor is not None  # noqa: S101 - for the type checker: the caller has looked
    first: int = ingestion.cursor["retry"]
    # Pages made by this very listing are behind `until`: what fails a second time is not tried for ever.
    until: int = ingestion.cursor.get("until", ingestion.next_page)
    pages: list[tuple[int, int]] = []
    closed: list[ClosedPage] = []
    chunks = tokens = 0
    pages_done = context.ledger.run(read_closed(ingestion.id, first, min(_LOOK, until - first)))
    failing = [page for page in pages_done if page.failed]
    for page in failing[:_PAGES]:
        context.progress()
        failed = [outcome for outcome in read_outcomes(context.storage, page.stored) if _is_retried(outcome)]
        refs = [DocumentRef.from_json(outcome.ref) for outcome in failed if outcome.ref is not None]
        if not refs:
            continue
        chunks += sum(outcome.chunks for outcome in failed)
        tokens += sum(outcome.tokens for outcome in failed)
        name = ingestion.manifest_name(ingestion.next_page + len(pages), context.fence)
        pages.append((write_manifest(context.storage, name, iter(refs)), 0))
        closed.append(_rewritten(context, ingestion, page, len(refs)))
    then = failing[_PAGES].number if len(failing) > _PAGES else first + _LOOK
    cursor = {"retry": then, "until": until} if then < until else None
    return Listing(pages, cursor, closed=closed, chunks=chunks, tokens=tokens)


def _is_retried(outcome: DocumentOutcome) -> bool:
    return outcome.status is DocumentStatus.FAILED and outcome.ref is not None


def _rewritten(context: JobContext, ingestion: Ingestion, page: ClosedPage, gone: int) -> ClosedPage:
    name = ingestion.outcomes_name(page.number, context.fence)
    with context.storage.writing(name) as file:
        for outcome in read_outcomes(context.storage, page.stored):
            if not _is_retried(outcome):
                file.write(outcome.to_line())
    return ClosedPage(page.number, name, page.loaded, page.unchanged, page.failed - gone)

"""Loads, as the stepper sees them: one at a time, of as many pages as are ready."""

import dataclasses
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.ingestions import deaths, ending
from tasks.documents.ingestions.moving import move_on
from tasks.documents.ingestions.outcomes import outcome_of
from tasks.documents.ingestions.pages import affordable
from tasks.documents.ingestions.submissions import forget, submit_job
from tasks.ledger.ingestion_operations import Move, move_ingestion
from tasks.ledger.ingestions import ClosedPage, Ingestion, IngestionFault, IngestionStatus, Page, PageStage

MAX_CHUNKS = 32_768
ENOUGH_CHUNKS = 8_192
ENOUGH_PAGES = 48
PATIENCE_MS = 10_000
"""A load begins with `ENOUGH_CHUNKS` or `ENOUGH_PAGES`, so long after the one before, or when nothing else is under
way: each makes one part of a dataset, and a million documents in parts of a hundred are slow to write and to read."""

_LOADS = (IngestionStatus.IN_PROGRESS, IngestionStatus.CANCELLING)


def load_on(context: StepContext, ingestion: Ingestion) -> None:
    """Submits the next load, or takes in what came of the one under way."""
    if any(page.stage is PageStage.LOADING for page in ingestion.pages.values()):
        loaded(context, ingestion)
        return
    pages = _ready(ingestion, context.settings.ingest_credit_chunks)
    if not pages:
        return
    number = ingestion.load_number
    forget(context, ingestion, "load", number - 1)
    move = Move(
        [IngestionStatus.IN_PROGRESS],
        equal={"load_number": number},
        stages={page.number: PageStage.READY for page in pages},
        set={"load_number": number + 1},
        put=[dataclasses.replace(page, stage=PageStage.LOADING, load=number) for page in pages],
    )
    moved, _ = context.ledger.run(move_ingestion(ingestion.id, move))
    if moved:
        submit_job(context, ingestion, "load", number)


def loaded(context: StepContext, ingestion: Ingestion) -> None:
    """Closes the pages of the load under way, if it has ended."""
    number = ingestion.load_number - 1
    if ingestion.load_state is None:
        if ingestion.status is IngestionStatus.IN_PROGRESS:
            submit_job(context, ingestion, "load", number)
        return
    if not ingestion.load_state.terminal:
        return
    found = outcome_of(context, ingestion, "load", number)
    if isinstance(found, dict) and "gone" in found:
        forget(context, ingestion, "load", number)
    elif isinstance(found, dict):
        _close(context, ingestion, found["pages"])
    elif found is not None and not deaths.again(context, ingestion, "load", number, found):
        _give_up(context, ingestion, ending.fault_of(found))


def _ready(ingestion: Ingestion, credit: int) -> list[Page]:
    ready = [page for page in ingestion.pages.values() if page.stage is PageStage.READY]
    chunks = sum(page.chunks for page in ready)
    since = max(ingestion.times.get(IngestionStatus.IN_PROGRESS, 0), ingestion.loaded_ms or 0)
    nothing_to_list = bool(ingestion.waiting) or ingestion.listing_complete
    nothing_else = nothing_to_list and len(ready) == len(ingestion.pages) and not affordable(ingestion, credit)
    enough = (
        chunks >= min(ENOUGH_CHUNKS, credit // 2)
        or len(ready) >= ENOUGH_PAGES
        or ingestion.now_ms - since >= PATIENCE_MS
    )
    if not (enough or nothing_else):
        return []
    taken: list[Page] = []
    for page in ready:
        if taken and sum(each.chunks for each in taken) + page.chunks > MAX_CHUNKS:
            break
        taken.append(page)
    return taken


def _close(context: StepContext, ingestion: Ingestion, outcomes: list[list[Any]]) -> None:
    pages = [ingestion.pages[outcome[0]] for outcome in outcomes]
    closed = [ClosedPage(*outcome[:5]) for outcome in outcomes]
    chunks, replaced = sum(outcome[5] for outcome in outcomes), sum(sum(outcome[6:]) for outcome in outcomes)
    move = Move(
        _LOADS,
        stages={page.number: PageStage.LOADING for page in pages},
        drop=[page.number for page in pages],
        close=closed,
        set={
            "litter": " ".join(str(page.number) for page in pages),
            "loaded_ms": ingestion.now_ms,
        },
        add={
            "loaded": sum(page.loaded for page in closed),
            "unchanged": sum(page.unchanged for page in closed),
            "failed": sum(page.failed for page in closed),
            "replaced": replaced,
            "chunks_loaded": 0 if ingestion.dry_run else chunks,
            "bytes_done": sum(page.size_bytes for page in pages),
        },
    )
    if move_on(context, ingestion, move):
        # The task of the load itself is forgotten with the next one: whoever died here must find it.
        for page in pages:
            forget(context, ingestion, "parse", page.number)
            forget(context, ingestion, "embed", page.number)


def _give_up(context: StepContext, ingestion: Ingestion, fault: IngestionFault) -> None:
    # Its pages are ready again, and dropped with all others.
    pages = [page for page in ingestion.pages.values() if page.stage is PageStage.LOADING]
    ending.stop(context, ingestion, fault)
    back = [dataclasses.replace(page, stage=PageStage.READY, load=None) for page in pages]
    stages = {page.number: PageStage.LOADING for page in pages}
    move = Move([IngestionStatus.CANCELLING], stages=stages, put=back)
    context.ledger.run(move_ingestion(ingestion.id, move))

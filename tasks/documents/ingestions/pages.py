"""Pages on their way from being listed to being ready for the sink, as the stepper sees them."""

import dataclasses
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.ingestions import deaths, ending
from tasks.documents.ingestions.moving import move_on
from tasks.documents.ingestions.outcomes import outcome_of
from tasks.documents.ingestions.submissions import forget, submit_embedding, submit_job
from tasks.errors import DatasetDeleted, ModelChanged, SinkDimensionMismatch, SinkRefused
from tasks.ledger import ItemError
from tasks.ledger.ingestion_operations import Move, move_ingestion
from tasks.ledger.ingestions import Ingestion, IngestionStatus, Page, PageStage
from tasks.ledger.waiting_pages import WaitingPage

WORKED_ON = 8
"""Pages of one ingestion that are parsed or embedded at the same time."""
IN_FLIGHT = 64
"""Pages that are begun and not closed: those of little text wait for each other, so that they are loaded together."""

_IN_PROGRESS = (IngestionStatus.IN_PROGRESS,)
_FOR_ALL = {SinkRefused.code, SinkDimensionMismatch.code, DatasetDeleted.code, ModelChanged.code}
"""What PARSE meets before it looks at a document: no other page would fare better."""


def begin(context: StepContext, ingestion: Ingestion) -> None:
    """Begins as many waiting pages as there is credit for: chunks that are cut and not loaded take up room."""
    begun = affordable(ingestion, context.settings.ingest_credit_chunks)
    if not begun:
        return
    pages = [
        Page(w.number, PageStage.PARSE, ingestion.manifest_name(w.number, w.fence), w.documents, w.size_bytes)
        for w in begun
    ]
    move = Move(_IN_PROGRESS, begin=begun, stages={page.number: None for page in pages}, put=pages)
    moved, _ = context.ledger.run(move_ingestion(ingestion.id, move))
    if moved:
        for page in pages:
            submit_job(context, ingestion, "parse", page.number)


def step_page(context: StepContext, ingestion: Ingestion, page: Page) -> None:
    """Does what is to be done for a page in its stage, if anything."""
    if page.stage is PageStage.PARSE:
        _parse(context, ingestion, page)
    elif page.stage is PageStage.EMBED:
        _embed(context, ingestion, page)


def affordable(ingestion: Ingestion, credit: int) -> list[WaitingPage]:
    """The waiting pages that may be begun now."""
    pages = ingestion.pages.values()
    worked_on = sum(page.stage in {PageStage.PARSE, PageStage.EMBED} for page in pages)
    parsing = [page for page in pages if page.stage is PageStage.PARSE]
    spent = sum(page.chunks for page in pages) + sum(_expected(ingestion, page.documents) for page in parsing)
    begun: list[WaitingPage] = []
    for waiting in ingestion.begin_next:
        cost = _expected(ingestion, waiting.documents)
        full = worked_on + len(begun) >= WORKED_ON or len(pages) + len(begun) >= IN_FLIGHT or spent + cost > credit
        if full and (pages or begun):
            break
        begun.append(waiting)
        spent += cost
    return begun


def _expected(ingestion: Ingestion, documents: int) -> int:
    """Chunks of a page that is not parsed yet: as many per page as those before it had."""
    counts = ingestion.counts
    return -(-counts.chunks // counts.pages_parsed) if counts.pages_parsed else documents


def _parse(context: StepContext, ingestion: Ingestion, page: Page) -> None:
    if page.state is None:
        submit_job(context, ingestion, "parse", page.number)
    elif page.state.terminal:
        found = outcome_of(context, ingestion, "parse", page.number)
        if isinstance(found, dict) and "gone" in found:
            forget(context, ingestion, "parse", page.number)  # it ran before the page was as it is now: once more
        elif isinstance(found, ItemError) and found.code in _FOR_ALL:
            ending.stop(context, ingestion, ending.fault_of(found))
        elif found is not None and not deaths.page_again(context, ingestion, page, found):
            _parsed(context, ingestion, page, found)


def _parsed(context: StepContext, ingestion: Ingestion, page: Page, found: dict[str, Any] | ItemError) -> None:
    move = Move(_IN_PROGRESS, stages={page.number: PageStage.PARSE})
    if isinstance(found, ItemError):
        after, add = dataclasses.replace(page, stage=PageStage.READY, fault=(found.code, found.message)), {}
    else:
        if "rest" in found:
            move, page = _divided(context, ingestion, page, found), _first_half(page, found)
        embeds = found["rows"] > 0
        after = dataclasses.replace(
            page,
            stage=PageStage.EMBED if embeds else PageStage.READY,
            parsed=found["parsed"],
            source=found["source"],
            index=found["index"],
            chunks=found["rows"],
            cut=(found["chunks"], found["tokens"]),
            emptied=found.get("emptied", 0),
        )
        add = {"chunks": found["chunks"], "chunk_tokens": found["tokens"]}
    move = dataclasses.replace(move, put=[after], add=add | {"pages_parsed": 1})
    if move_on(context, ingestion, move) and after.stage is PageStage.EMBED and isinstance(found, dict):
        submit_embedding(context, ingestion, after, found)


def _divided(context: StepContext, ingestion: Ingestion, page: Page, found: dict[str, Any]) -> Move:
    """What PARSE had no time for becomes a page that waits behind the others; the move in which it does."""
    stored, documents, size_bytes = found["rest"]
    number, fence = ingestion.next_page, stored.rpartition(".")[2]
    # With another number if a listing is faster: what is written here is litter of that page then.
    context.storage.write(ingestion.manifest_name(number, fence), context.storage.read(stored))
    return Move(
        _IN_PROGRESS,
        stages={page.number: PageStage.PARSE},
        equal={"next_page": number},
        set={"next_page": number + 1},
        wait=[WaitingPage(number, fence, documents, size_bytes)],
    )


def _first_half(page: Page, found: dict[str, Any]) -> Page:
    manifest, documents, size_bytes = found["done"]
    return dataclasses.replace(page, manifest=manifest, documents=documents, size_bytes=size_bytes)


def _embed(context: StepContext, ingestion: Ingestion, page: Page) -> None:
    if page.state is None:
        if context.postponed.waits(ingestion.task_id("embed", page.number)):
            return  # the submission names every chunk of the page: reading and building it is not for nothing
        found = outcome_of(context, ingestion, "parse", page.number)
        if isinstance(found, dict) and "gone" not in found:
            submit_embedding(context, ingestion, page, found)
        else:  # Redis has lost it, by whatever hand
            again = Page(page.number, PageStage.PARSE, page.manifest, page.documents, page.size_bytes)
            move = Move(_IN_PROGRESS, stages={page.number: PageStage.EMBED}, put=[again], add=page.undone)
            move_on(context, ingestion, move)
    elif page.state.terminal:
        move = Move(
            _IN_PROGRESS,
            stages={page.number: PageStage.EMBED},
            put=[dataclasses.replace(page, stage=PageStage.READY)],
            add={"chunks_embedded": page.embedded, "tokens": page.embedding_tokens},
        )
        move_on(context, ingestion, move)

"""Pages on their way from being listed to being ready for the sink, as the stepper sees them."""

import dataclasses
from typing import Any

import orjson

from tasks.documents.context import StepContext
from tasks.documents.ingestions import ending, submissions
from tasks.documents.ingestions.submissions import forget, move_on, outcome_of, submit_embedding, submit_job
from tasks.errors import DatasetDeleted, ModelChanged, SinkDimensionMismatch, SinkRefused
from tasks.item import ItemError
from tasks.records.ingestion_operations import Move, move_ingestion
from tasks.records.ingestions import (
    ClosedPage,
    Ingestion,
    IngestionFault,
    IngestionStatus,
    PageInFlight,
    PageStage,
    WaitingPage,
)

# Listing, as the stepper sees it: one job after the other, ahead of parsing.

MAX_WAITING = 20_000
"""Pages that are listed and not begun. Totals are known early, and Redis holds 30 bytes for each."""


def list_on(context: StepContext, ingestion: Ingestion) -> None:
    """Submits the next listing, or takes in what it found."""
    number = ingestion.list_number
    if ingestion.listing_complete:
        return
    if ingestion.list_state is None:
        if ingestion.waiting < MAX_WAITING:
            submit_job(context, ingestion, "list", number)
    elif ingestion.list_state.terminal:
        found = outcome_of(context, ingestion, "list", number)
        if isinstance(found, dict) and (
            "gone" in found or found.get("first", ingestion.next_page) != ingestion.next_page
        ):
            # It ran before its ingestion was as it is now, or a page was divided meanwhile: once more.
            forget(context, ingestion, "list", number)
        elif isinstance(found, dict):
            _take_in(context, ingestion, found)
        elif found is not None and not submissions.again(context, ingestion, "list", number, found):
            ending.stop(context, ingestion, ending.fault_of(found))


def _take_in(context: StepContext, ingestion: Ingestion, found: dict[str, Any]) -> None:
    pages = [
        WaitingPage(ingestion.next_page + at, found["fence"], documents, size_bytes)
        for at, (documents, size_bytes) in enumerate(found["pages"])
    ]
    closed = [ClosedPage(*page) for page in found.get("closed", ())]
    listed = sum(page.documents for page in pages)
    retries = listed if "closed" in found else 0  # they have been counted, and as failed
    chunks, tokens = found.get("chunks", 0), found.get("tokens", 0)
    cursor = {"cursor": orjson.dumps(found["cursor"]).decode()} if found["cursor"] is not None else {}
    move = Move(
        only_from=[IngestionStatus.IN_PROGRESS],
        equal={"list_number": ingestion.list_number, "next_page": ingestion.next_page},
        set={
            "list_number": ingestion.list_number + 1,
            "next_page": ingestion.next_page + len(pages),
            **(cursor or {"listing_complete": "1"}),
            **({"ids": found["ids"]} if found.get("ids") else {}),
        },
        unset=[*(() if cursor else ["cursor"]), *(("s0", "s1") if retries else ())],
        add={
            "documents": listed - retries,
            "failed": -retries,
            "chunks": -chunks,
            "chunks_embedded": -chunks,
            "chunk_tokens": -tokens,
            "bytes": sum(page.size_bytes for page in pages),
        },
        wait=pages,
        close=closed,
    )
    if move_on(context, ingestion, move):
        forget(context, ingestion, "list", ingestion.list_number)


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
        PageInFlight(w.number, PageStage.PARSE, ingestion.manifest_name(w.number, w.fence), w.documents, w.size_bytes)
        for w in begun
    ]
    move = Move(_IN_PROGRESS, begin=begun, stages={page.number: None for page in pages}, put=pages)
    moved, _ = context.ledger.run(move_ingestion(ingestion.id, move))
    if moved:
        for page in pages:
            submit_job(context, ingestion, "parse", page.number)


def step_page(context: StepContext, ingestion: Ingestion, page: PageInFlight) -> None:
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


def _parse(context: StepContext, ingestion: Ingestion, page: PageInFlight) -> None:
    if page.state is None:
        submit_job(context, ingestion, "parse", page.number)
    elif page.state.terminal:
        found = outcome_of(context, ingestion, "parse", page.number)
        if isinstance(found, dict) and "gone" in found:
            forget(context, ingestion, "parse", page.number)  # it ran before the page was as it is now: once more
        elif isinstance(found, ItemError) and found.code in _FOR_ALL:
            ending.stop(context, ingestion, ending.fault_of(found))
        elif found is not None and not submissions.page_again(context, ingestion, page, found):
            _parsed(context, ingestion, page, found)


def _parsed(context: StepContext, ingestion: Ingestion, page: PageInFlight, found: dict[str, Any] | ItemError) -> None:
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


def _divided(context: StepContext, ingestion: Ingestion, page: PageInFlight, found: dict[str, Any]) -> Move:
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


def _first_half(page: PageInFlight, found: dict[str, Any]) -> PageInFlight:
    manifest, documents, size_bytes = found["done"]
    return dataclasses.replace(page, manifest=manifest, documents=documents, size_bytes=size_bytes)


def _embed(context: StepContext, ingestion: Ingestion, page: PageInFlight) -> None:
    if page.state is None:
        if context.postponed.waits(ingestion.task_id("embed", page.number)):
            return  # the submission names every chunk of the page: reading and building it is not for nothing
        found = outcome_of(context, ingestion, "parse", page.number)
        if isinstance(found, dict) and "gone" not in found:
            submit_embedding(context, ingestion, page, found)
        else:  # Redis has lost it, by whatever hand
            again = PageInFlight(page.number, PageStage.PARSE, page.manifest, page.documents, page.size_bytes)
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


# Loads, as the stepper sees them: one at a time, of as many pages as are ready.

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
    elif found is not None and not submissions.again(context, ingestion, "load", number, found):
        _give_up(context, ingestion, ending.fault_of(found))


def _ready(ingestion: Ingestion, credit: int) -> list[PageInFlight]:
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
    taken: list[PageInFlight] = []
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

"""Listing, as the stepper sees it: one job after the other, ahead of parsing."""

from typing import Any

import orjson

from tasks.documents.context import StepContext
from tasks.documents.ingestions import deaths, ending
from tasks.documents.ingestions.moving import move_on
from tasks.documents.ingestions.outcomes import outcome_of
from tasks.documents.ingestions.submissions import forget, submit_job
from tasks.ledger.ingestion_operations import Move
from tasks.ledger.ingestions import ClosedPage, Ingestion, IngestionStatus
from tasks.ledger.waiting_pages import WaitingPage

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
        elif found is not None and not deaths.again(context, ingestion, "list", number, found):
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

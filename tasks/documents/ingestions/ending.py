"""How an ingestion ends: by itself, cancelled, or because it cannot go on; and its tasks are forgotten."""

import dataclasses
from collections import Counter
from collections.abc import Sequence

import orjson

from tasks.documents.context import StepContext
from tasks.documents.ingestions.job_tasks import forget, move_on
from tasks.item import TextError
from tasks.ledger import cancel
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.ingestion_operations import Move, close_ingestion, move_ingestion, read_ingestion
from tasks.records.ingestions import Ingestion, IngestionFault, IngestionStatus, PageInFlight, PageStage

_OURS = {"worker_lost", "not_stored", "internal_error", "sink_refused"}
"""Faults of the installation, not of the request: somebody mends them, and it goes on."""
_FORGET_AT_ONCE = 1000
_RUNNING = (IngestionStatus.QUEUED, IngestionStatus.IN_PROGRESS, IngestionStatus.FINALIZING)


def fault_of(error: TextError) -> IngestionFault:
    """Why a job came to nothing, and its ingestion with it."""
    return IngestionFault(error.code, error.message)


def stop(context: StepContext, ingestion: Ingestion, fault: IngestionFault) -> None:
    """The ingestion cannot go on. As when it is cancelled, what is being loaded is let finish."""
    error = orjson.dumps(fault).decode()
    move = Move(_RUNNING, to=IngestionStatus.CANCELLING, equal={"error": ""}, set={"error": error})
    move_on(context, ingestion, move)


def completed(context: StepContext, ingestion: Ingestion, deleted: int) -> None:
    """Every document has its outcome. When all of them failed, so has the ingestion."""
    counts = ingestion.counts
    to = IngestionStatus.FAILED if counts.failed and counts.failed == counts.documents else IngestionStatus.COMPLETED
    fields: dict[str, str | int | float] = {}
    if ingestion.dry_run:
        queue = context.ledger.run(overview(ingestion.model))[ingestion.model]
        fields["estimate_s"] = counts.chunk_tokens / queue.speed
    move = Move(
        [IngestionStatus.FINALIZING],
        to=to,
        set=fields,
        add={"deleted": deleted},
    )
    move_on(context, ingestion, move)


def let_go(context: StepContext, ingestion: Ingestion, deleted: int = 0) -> None:
    """Ends every task but that of a load, and drops the pages that are in no load; then it is cancelled, or failed.

    A load that has begun is let finish. One that found the sink away, or is nowhere, is given up: it may be away for
    days. A worker that was taken for dead and loads all the same harms nobody: the sink has what it has.

    One that fails through no fault of its request keeps its pages: they wait, and it can go on with them.
    """
    resumable = ingestion.error is not None and ingestion.error.code in _OURS and ingestion.revision is not None
    forget(context, ingestion, "list", ingestion.list_number)
    loads = ingestion.load_state is not None
    dropped = [page for page in ingestion.pages.values() if not (loads and page.stage is PageStage.LOADING)]
    for name in ("parse", "embed"):
        forget(context, ingestion, name, *(page.number for page in dropped))
    cancelling = [IngestionStatus.CANCELLING]
    if len(dropped) < len(ingestion.pages):
        move = _dropping(Move(cancelling), dropped, resumable=resumable)
    else:
        # All at once: nobody else may have closed a page in the meantime, or its documents would count twice.
        move = Move(
            cancelling,
            to=IngestionStatus.FAILED if ingestion.error else IngestionStatus.CANCELLED,
            equal={name: getattr(ingestion.counts, name) for name in ("loaded", "unchanged", "failed")},
            set={"resumable": "1"} if resumable else {},
            add={"cancelled": ingestion.counts.in_progress, "deleted": deleted},
        )
        move = _dropping(move, dropped, resumable=resumable)
    if move.to is None:
        context.ledger.run(move_ingestion(ingestion.id, move))
    elif move_on(context, ingestion, move):  # what it came to is known, and whoever goes on needs another one
        forget(context, ingestion, "finish", ingestion.list_number)


def _dropping(move: Move, pages: Sequence[PageInFlight], *, resumable: bool) -> Move:
    add = Counter(move.add)
    for page in pages if resumable else ():
        add.update(page.undone)
    return dataclasses.replace(
        move,
        stages={page.number: page.stage for page in pages},
        drop=[page.number for page in pages],
        wait=[page.waiting for page in pages] if resumable else (),
        add=add,
    )


def clean_up(context: StepContext, ingestion: Ingestion) -> None:
    """Forgets the tasks of an ingestion that has ended. What it has in the storage is the sweep's, a minute later."""
    # All that there can be: whoever died between a move and what it makes superfluous has left some.
    tries = range(ingestion.list_number + 1)
    jobs = {"parse": range(ingestion.next_page), "load": range(ingestion.load_number), "list": tries, "finish": tries}
    named = [(DOCUMENTS, [ingestion.task_id(name, number) for number in numbers]) for name, numbers in jobs.items()]
    named.append((ingestion.model, [ingestion.task_id("embed", page) for page in range(ingestion.next_page)]))
    if not all(_forget_all(context, ingestion, model, task_ids) for model, task_ids in named):
        return
    context.ledger.run(close_ingestion(ingestion.id, deleted=ingestion.deleted))


def _forget_all(context: StepContext, ingestion: Ingestion, model: str, task_ids: Sequence[str]) -> bool:
    """Whether the ingestion is still at its end: one that goes on meanwhile has tasks of the same names."""
    for first in range(0, len(task_ids), _FORGET_AT_ONCE):
        context.moved()
        now = context.ledger.run(read_ingestion(ingestion.id))
        if now is None or not now.status.terminal:
            return False
        context.ledger.run(cancel.forget(model, *task_ids[first : first + _FORGET_AT_ONCE]))
    return True

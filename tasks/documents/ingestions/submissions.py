"""The ledger tasks of an ingestion.

Their ids follow from the ingestion's and a number, so submitting one again is harmless.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import orjson

from tasks.documents import deaths
from tasks.documents.context import StepContext
from tasks.documents.ingestions.job_calls import after, job_id
from tasks.documents.jobs import JobCall
from tasks.documents.submitting import job_task, rows_task, submit
from tasks.item import ItemError
from tasks.ledger import DOCUMENTS, Lane, Submission, operations
from tasks.ledger.operations import read_committed
from tasks.records.ingestion_operations import Move, losses_field, move_ingestion, setback_field
from tasks.records.ingestions import Ingestion, IngestionStatus, PageInFlight, PageStage

# Moves that bring an ingestion further.


def move_on(context: StepContext, ingestion: Ingestion, move: Move) -> bool:
    """Whether the move was made. What it makes possible is looked for soon, not a quarter of a second later.

    Not for a move that may be made again in the next round, or the rounds would never pause.
    """
    moved, _ = context.ledger.run(move_ingestion(ingestion.id, move))
    if moved:
        context.again()
    return moved


# Reading how a job of an ingestion ended.

_NO_OUTCOME = ItemError("internal_error", "A job left no outcome.")


def outcome_of(context: StepContext, ingestion: Ingestion, name: str, number: int) -> dict[str, Any] | ItemError | None:
    """What a job returned, or why it came to nothing; None when the ledger holds no such task that has ended."""
    committed = context.ledger.run(read_committed(ingestion.task_id(name, number)))
    if committed is None or not committed.task.state.terminal:  # taken in by somebody, and submitted by a late step
        return None
    if committed.units:
        found: dict[str, Any] = orjson.loads(committed.units[0].data)
        return found
    return committed.errors.get(0, _NO_OUTCOME)


_KIND = {"list": "list_page", "parse": "parse_page", "load": "load_pages", "finish": "finish_ingestion"}
_LANE = {"list": Lane.BULK, "parse": Lane.BULK, "load": Lane.ONLINE, "finish": Lane.ONLINE}
"""What is embedded is loaded before more is parsed: it takes up room."""
_OPEN = [status for status in IngestionStatus if not status.terminal]


def submit_job(context: StepContext, ingestion: Ingestion, name: str, number: int) -> None:
    """Submits a `list`, `parse`, `load` or `finish`, unless it is too early to ask for it again."""
    task_id, setback = ingestion.task_id(name, number), ingestion.setbacks.get(name)
    if context.postponed.waits(task_id) or (setback and ingestion.now_ms < setback.until_ms):
        return
    call = JobCall(_KIND[name], job_id(ingestion, number))
    _submit_while(
        context,
        ingestion,
        job_task(task_id, call, owner=ingestion.owner, lane=_LANE[name]),
        Move(_OPEN),
    )


def submit_embedding(context: StepContext, ingestion: Ingestion, page: PageInFlight, found: Mapping[str, Any]) -> None:
    """Submits the chunks which PARSE `found`. Ask `context.postponed` before they are read."""
    task = rows_task(
        ingestion.task_id("embed", page.number),
        found,
        found["rows"],
        context.settings,
        model=ingestion.model,
        owner=ingestion.owner,
    )
    _submit_while(context, ingestion, task, Move([IngestionStatus.IN_PROGRESS], stages={page.number: PageStage.EMBED}))


def forget(context: StepContext, ingestion: Ingestion, name: str, number: int) -> None:
    """Ends a task and removes every trace of it, if there is one."""
    model = ingestion.model if name == "embed" else DOCUMENTS
    context.ledger.run(operations.forget(model, ingestion.task_id(name, number)))


def _submit_while(context: StepContext, ingestion: Ingestion, task: Submission, still: Move) -> None:
    if submit(context, task) and not context.ledger.run(move_ingestion(ingestion.id, still))[0]:
        # It was cancelled, and tidied up, meanwhile: nobody else would end this task.
        context.ledger.run(operations.forget(task.queue, task.task_id))


# Jobs of an ingestion that are tried again after the deaths of their workers: `tasks.documents.deaths` decides.

_GOING_ON = (IngestionStatus.IN_PROGRESS, IngestionStatus.FINALIZING)


def again(context: StepContext, ingestion: Ingestion, name: str, number: int, found: object) -> bool:
    """Whether a `list`, `load` or `finish` that ended with `found` is tried again, after a pause."""
    losses = ingestion.losses.get(name, 0)
    if not deaths.again(found, losses) or ingestion.status not in _GOING_ON:
        return False
    field = losses_field(name)
    move = Move(
        _GOING_ON,
        equal={field: losses},
        set={field: losses + 1, setback_field(name): after(ingestion, name, "worker").to_text()},
    )
    if context.ledger.run(move_ingestion(ingestion.id, move))[0]:
        forget(context, ingestion, name, number)
    return True


def page_again(context: StepContext, ingestion: Ingestion, page: PageInFlight, found: object) -> bool:
    """Whether a `parse` that ended with `found` is tried again, after a pause."""
    if not deaths.again(found, page.losses):
        return False
    move = Move(
        [IngestionStatus.IN_PROGRESS],
        stages={page.number: PageStage.PARSE},
        put=[dataclasses.replace(page, losses=page.losses + 1)],
        set={setback_field("parse"): after(ingestion, "parse", "worker").to_text()},
    )
    if context.ledger.run(move_ingestion(ingestion.id, move))[0]:
        forget(context, ingestion, "parse", page.number)
    return True

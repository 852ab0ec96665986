"""The jobs of an ingestion as tasks of the ledger: enqueued with a move, put off, tried again, given up.

Ids of tasks follow from the ingestion's and a number: a listing, a page, a load, a try. A task is enqueued in the
script that moves the ingestion, and only if it moves. So there is one task for what there is to do, also when two
workers take the same step, and none for an ingestion that was cancelled meanwhile.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from tasks.documents import deaths
from tasks.documents.context import JobContext, StepContext
from tasks.documents.ingestions.outcomes import GONE
from tasks.documents.submitting import bring_in
from tasks.errors import NotReady, RedisUnavailable, SinkUnavailable, StorageUnavailable, Unavailable
from tasks.item import TextError
from tasks.ledger import cancel
from tasks.ledger.read import read_result
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane, NewTask
from tasks.records.document_jobs import JobCall, is_pause, job_task
from tasks.records.ingestion_operations import (
    Move,
    away_field,
    losses_field,
    move_ingestion,
    read_ingestion,
    setback_field,
    setback_fields,
)
from tasks.records.ingestions import Ingestion, IngestionStatus, Setback

_log = logging.getLogger(__name__)

_KIND = {"list": "list_page", "parse": "parse_page", "load": "load_pages", "finish": "finish_ingestion"}
_LANE = {"list": Lane.BULK, "parse": Lane.BULK, "load": Lane.ONLINE, "finish": Lane.ONLINE}
"""What is embedded is loaded before more is parsed: it takes up room."""
_OPEN = [status for status in IngestionStatus if not status.terminal]
_GOING_ON = (IngestionStatus.IN_PROGRESS, IngestionStatus.FINALIZING)
_AWAY: dict[type[Unavailable], str] = {SinkUnavailable: "sink", StorageUnavailable: "storage", NotReady: "model"}
_NO_OUTCOME = TextError("internal_error", "A job left no outcome.")


# Enqueueing, once the ingestion is moved.


def task_of(ingestion: Ingestion, name: str, number: int) -> NewTask:
    """A `list`, `parse`, `load` or `finish` with this number."""
    call = JobCall(_KIND[name], f"{ingestion.id}/{number}")
    task_id = ingestion.task_id(name, number)
    return job_task(task_id, call, owner=ingestion.owner, lane=_LANE[name], trace=ingestion.trace_of(number))


def waits(ingestion: Ingestion, name: str) -> bool:
    """Whether it is too early for such a job: the one before found something away, or its workers died."""
    setback = ingestion.setbacks.get(name)
    return setback is not None and is_pause(ingestion.now_ms, setback.until_ms)


def move_on(context: StepContext, ingestion: Ingestion, move: Move, tasks: Sequence[NewTask] = ()) -> bool:
    """Whether the move was made, and then the tasks enqueued. What it makes possible is done in the next round.

    Not for a move that may be made again in the next round, or the rounds would never pause.
    """
    moved = enqueue(context, ingestion, move, tasks)
    if moved:
        context.again()
    return moved


def enqueue(context: StepContext, ingestion: Ingestion, move: Move, tasks: Sequence[NewTask]) -> bool:
    """The same, when nothing more is possible before the tasks have ended."""
    moved = context.ledger.run(move_ingestion(ingestion.id, move)).moved
    if moved and tasks:  # whoever dies in between leaves a job that is missed in the next round
        bring_in(context, tasks)
    return moved


def enqueue_job(context: StepContext, ingestion: Ingestion, name: str, number: int, while_: Move) -> None:
    """Enqueues a job that should be there and is not, unless it is too early for it. `while_`: what it is needed in."""
    if not waits(ingestion, name):
        enqueue(context, ingestion, while_, [task_of(ingestion, name, number)])


def forget(context: StepContext, ingestion: Ingestion, name: str, *numbers: int) -> None:
    """Ends tasks and removes every trace of them, if they are there."""
    if numbers:
        model = ingestion.model if name == "embed" else DOCUMENTS
        task_ids = [ingestion.task_id(name, number) for number in numbers]
        context.ledger.run(cancel.forget(model, *task_ids))


# How a job ended that left no change of its ingestion.


def outcome_of(context: StepContext, ingestion: Ingestion, name: str, number: int) -> dict[str, Any] | TextError | None:
    """What a job returned, or why it failed; None when the ledger holds no such task that has ended."""
    committed = context.ledger.run(read_result(ingestion.task_id(name, number)))
    if committed is None or not committed.task.state.terminal:  # a late step asks
        return None
    outcome = committed.returned()
    return committed.stored_errors.get(0, _NO_OUTCOME) if outcome is None else outcome


def error_of(context: StepContext, ingestion: Ingestion, name: str, number: int) -> TextError | None:
    """Why a job failed; None where it did not."""
    outcome = outcome_of(context, ingestion, name, number)
    return outcome if isinstance(outcome, TextError) else None


def again(context: StepContext, ingestion: Ingestion, name: str, number: int, error: TextError) -> bool:
    """Whether a `list`, `load` or `finish` that failed is tried again, after a pause."""
    losses = ingestion.losses.get(name, 0)
    if not deaths.again(error, losses) or ingestion.status not in _GOING_ON:
        return False
    field = losses_field(name)
    move = Move(_GOING_ON, equal={field: losses}, set={field: losses + 1} | lost(ingestion, name))
    if context.ledger.run(move_ingestion(ingestion.id, move)).moved:
        forget(context, ingestion, name, number)
    return True


def lost(ingestion: Ingestion, name: str) -> dict[str, str | int | float]:
    """Fields for a kind of job whose workers died: the pause until the next one."""
    return setback_fields(name, _setback(ingestion, name, "worker"))


# Jobs that wait for something.


def find(context: JobContext, job: str) -> tuple[Ingestion | None, int]:
    """The ingestion of a job, None when it has ended, and the number that the job is about."""
    ingestion_id, _, number = job.partition("/")
    ingestion = context.ledger.run(read_ingestion(ingestion_id))
    return (None if ingestion is None or ingestion.status.terminal else ingestion), int(number or 0)


def patiently(context: JobContext, ingestion: Ingestion, name: str, work: Callable[[], bytes]) -> bytes:
    """The outcome of a `list`, `parse`, `load` or `finish`; `GONE` where something that it needs is away.

    The ingestion then says what is away, and until when no such job need be tried again: it would only take the turns
    of others.

    Raises:
        RedisUnavailable: nobody can be told.
    """
    try:
        outcome = work()
    except RedisUnavailable:
        raise
    except Unavailable as error:
        _put_off(context, ingestion, name, error)
        return GONE
    if name in ingestion.setbacks:
        fields = [setback_field(name), away_field(name), losses_field(name)]
        context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, unset=fields)))
    return outcome


def now(context: JobContext, ingestion: Ingestion) -> Ingestion:
    """It as it is now, for what the end of a long job depends on; as it was, where it is gone."""
    return context.ledger.run(read_ingestion(ingestion.id)) or ingestion


def _put_off(context: JobContext, ingestion: Ingestion, name: str, error: Unavailable) -> None:
    what = next((word for kind, word in _AWAY.items() if isinstance(error, kind)), error.code)
    _log.warning("%s of %s waits: %s", name, ingestion.id, error.code)
    now_ms = now(context, ingestion).now_ms
    setback = _setback(dataclasses.replace(ingestion, now_ms=now_ms), name, what)
    context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, set=setback_fields(name, setback))))


def _setback(ingestion: Ingestion, name: str, what: str) -> Setback:
    """That of a kind of job that has failed once more for `what`, at the moment of `ingestion`."""
    earlier = ingestion.setbacks.get(name)
    before = earlier.times if earlier else 0
    since_ms = earlier.since_ms if earlier and earlier.what == what else ingestion.now_ms
    return Setback(before + 1, what, ingestion.now_ms + round(deaths.pause_s(before) * 1000), since_ms)

"""Moving batches from one stage to the next.

Everything here may be done twice, at the same time, by workers that die in between: tasks have ids that follow from the
batch's, a move names the states it may start from, and what is cleaned up is looked for again until it is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.documents import deaths
from tasks.documents.context import StepContext
from tasks.documents.rounds import Round
from tasks.documents.submitting import Rows, bring_in, rows_task
from tasks.item import TextError
from tasks.ledger.cancel import cancel, forget
from tasks.ledger.read import read_result, read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import NewTask, Result, State
from tasks.records.batches import (
    KINDS,
    Batch,
    BatchFault,
    BatchStatus,
    FileKind,
    Stage,
    close_batch,
    faults_text,
    losses_field,
    move_batch,
    open_batches,
    read_batch,
    read_batches,
)
from tasks.records.document_jobs import JobCall, is_pause, job_task
from tasks.records.files import FileRecord, Purpose, put_batch_file
from worker_config.settings import Settings

# The ledger tasks of a batch, as they are submitted.

KIND = {Stage.VALIDATE: "validate_batch", Stage.ASSEMBLE: "assemble_batch"}


def job(batch: Batch, stage: Stage) -> NewTask:
    """The task of a stage that needs no model."""
    return job_task(batch.task_id(stage), JobCall(KIND[stage], batch.id), owner=batch.owner, trace=batch.trace)


def embedding(batch: Batch, plan: Mapping[str, Any]) -> NewTask:
    """The task that encodes the rows of a batch as VALIDATE has planned it. It expires when the batch's window ends."""
    return rows_task(
        batch.task_id(Stage.EMBED),
        Rows(plan["source"], plan["index"], plan["texts"], plan["pieces"]),
        model=plan["model"],
        owner=batch.owner,
        deadline_in_ms=max(1, batch.expires_ms - batch.now_ms),
        trace=batch.trace,
    )


# The ends of a batch: its files, its last state, and what is left of it removed.

_NO_OUTCOME = TextError("internal_error", "A job left no outcome.")
_OPEN = [status for status in BatchStatus if not status.terminal]


def came_to_nothing(context: StepContext, batch: Batch, stage: Stage, committed: Result) -> None:
    """A job has ended without an outcome: it is tried again after a pause, or the batch fails."""
    error = committed.stored_errors.get(0, _NO_OUTCOME)
    losses = batch.losses.get(stage, 0)
    if not deaths.again(error, losses):
        failed(context, batch, [BatchFault(error.code, error.message)])
        return
    again_ms = batch.now_ms + round(deaths.pause_s(losses) * 1000)
    fields = {losses_field(stage): losses + 1, "again_at": again_ms}
    if context.ledger.run(move_batch(batch.id, batch.status, only_from=[batch.status], fields=fields))[0]:
        context.ledger.run(forget(DOCUMENTS, batch.task_id(stage)))


def failed(context: StepContext, batch: Batch, faults: Sequence[BatchFault]) -> None:
    """The batch failed as a whole; one that is being cancelled is cancelled all the same."""
    to = BatchStatus.CANCELLED if batch.status is BatchStatus.CANCELLING else BatchStatus.FAILED
    # The task that knew how many were done is about to be forgotten.
    counts = {"completed": batch.completed, "failed": batch.failed}
    _end(context, batch, to, {"errors": faults_text(faults), **counts})


def without_rows(context: StepContext, batch: Batch, to: BatchStatus) -> None:
    """The batch ended before any of its requests was begun. How many there are is said where it is known."""
    fields: dict[str, str | int] = {"completed": 0, "failed": 0}
    committed = context.ledger.run(read_result(batch.task_id(Stage.VALIDATE)))
    plan = committed.returned() if committed is not None else None
    if plan is not None and "errors" not in plan:
        fields |= {"model": plan["model"], "total": plan["lines"]}
    # From this state alone: where another worker has begun the requests meanwhile, some may be done.
    context.ledger.run(move_batch(batch.id, to, only_from=[batch.status], fields=fields))


def assembled(context: StepContext, batch: Batch) -> None:
    """The last job has ended: its files are given to the owner, and the batch ends as was decided before."""
    outcome = _outcome_of(context, batch, Stage.ASSEMBLE)
    if outcome is None:
        return
    fields: dict[str, str | int] = {name: outcome[name] for name in ("model", "total", "completed", "failed", "tokens")}
    for kind in KINDS:
        if outcome[kind] is not None:
            record = _record(batch, kind, outcome[kind], context.settings)
            if not context.ledger.run(put_batch_file(record, batch.id)):
                return  # another worker has ended the batch, and its owner may have deleted the file since
            fields[f"{kind}_file"] = record.id
    to = BatchStatus.CANCELLED if batch.status is BatchStatus.CANCELLING else batch.ends_as
    _end(context, batch, to, fields)


def _outcome_of(context: StepContext, batch: Batch, stage: Stage) -> dict[str, Any] | None:
    """What the job of a stage returned; None when it has not ended, or came to nothing, which is seen to."""
    committed = context.ledger.run(read_result(batch.task_id(stage)))
    if committed is None or not committed.task.state.terminal:
        return None
    outcome = committed.returned()
    if outcome is None:
        came_to_nothing(context, batch, stage, committed)
    return outcome


def clean_up(context: StepContext, batch: Batch) -> None:
    """Forgets the tasks of a batch that has ended. What it has in the storage is the sweep's, a minute later."""
    for stage in batch.stages:
        task = context.ledger.run(read_task(batch.task_id(stage)))
        if task is not None:
            context.ledger.run(forget(task.queue, task.id))
    context.ledger.run(close_batch(batch.id, deleted=batch.deleted))


def _end(context: StepContext, batch: Batch, to: BatchStatus, fields: Mapping[str, str | int]) -> None:
    # The next step cleans up: one that dies in between leaves nothing behind for ever.
    context.ledger.run(move_batch(batch.id, to, only_from=_OPEN, fields=fields))


def _record(batch: Batch, kind: FileKind, written: Mapping[str, Any], settings: Settings) -> FileRecord:
    lives_s = batch.output_expires_s or settings.batch_ttl_s  # from when the record is made
    return FileRecord(
        id=batch.file_id(kind),
        owner=batch.owner,
        filename=f"{batch.id}_{kind}.jsonl",
        purpose=Purpose.BATCH_OUTPUT,
        size_bytes=written["size"],
        created_ms=batch.files_ms,
        expires_ms=batch.files_ms + round(lives_s * 1000),
        stored=written["stored"],
    )


_BATCHES_AT_ONCE = 100


def step_batches(context: StepContext) -> bool:
    """Takes one step with each of some open batches; whether one of them waits for a moment.

    Raises what the last one raised that could not take its step.
    """
    ids = context.ledger.run(open_batches(_BATCHES_AT_ONCE))
    batches = Round(context, read_batches, step).take(ids)
    return any(is_pause(batch.now_ms, batch.again_ms) for batch in batches)


def step(context: StepContext, batch: Batch) -> None:
    """Does what is to be done for a batch in its state, if anything."""
    _STEPS[batch.status](context, batch)


def _validating(context: StepContext, batch: Batch) -> None:
    state = batch.stages.get(Stage.VALIDATE)
    if batch.now_ms >= batch.expires_ms and batch.stages.get(Stage.EMBED) is None:
        _end_without_rows(context, batch, BatchStatus.EXPIRED)
    elif state is None:
        _submit_job(context, batch, Stage.VALIDATE)
    elif state.terminal:
        _validated(context, batch)


def _validated(context: StepContext, batch: Batch) -> None:
    plan = _outcome_of(context, batch, Stage.VALIDATE)
    if plan is None:
        return
    if "errors" in plan:
        failed(context, batch, [BatchFault(**fault) for fault in plan["errors"]])
        return
    task = embedding(batch, plan)
    bring_in(context, [task])
    fields = {"model": plan["model"], "total": plan["lines"], "texts": plan["texts"]}
    moved, status = context.ledger.run(
        move_batch(batch.id, BatchStatus.IN_PROGRESS, only_from=[BatchStatus.VALIDATING], fields=fields)
    )
    if not moved:
        _forget_if_ended(context, task, status)


def _in_progress(context: StepContext, batch: Batch) -> None:
    state = batch.stages.get(Stage.EMBED)
    if state is None:  # Redis has lost it, by whatever hand: the file is checked already
        _validated(context, batch)
        return
    # Read again: another worker may have begun the rows anew since the round began.
    task = context.ledger.run(read_task(batch.task_id(Stage.EMBED))) if state.terminal else None
    if task is None or not task.state.terminal:
        return
    if (
        task.model_changed and batch.now_ms < batch.expires_ms
    ):  # the file is of one model: every row is encoded by the one that is served now
        context.ledger.run(forget(task.queue, task.id))
        context.again()
    else:
        late = task.model_changed or task.state is State.EXPIRED
        ends_as = BatchStatus.EXPIRED if late else BatchStatus.COMPLETED
        move = move_batch(
            batch.id, BatchStatus.FINALIZING, only_from=[BatchStatus.IN_PROGRESS], fields={"ends_as": ends_as}
        )
        if context.ledger.run(move)[0]:
            context.again()


def _finalizing(context: StepContext, batch: Batch) -> None:
    state = batch.stages.get(Stage.ASSEMBLE)
    if state is None:
        _submit_job(context, batch, Stage.ASSEMBLE)
    elif state.terminal:
        assembled(context, batch)


def _cancelling(context: StepContext, batch: Batch) -> None:
    if batch.stages.get(Stage.EMBED) is None:  # no request was begun
        _end_without_rows(context, batch, BatchStatus.CANCELLED)
        return
    if batch.stages[Stage.EMBED].terminal:
        _finalizing(context, batch)
        return
    task = context.ledger.run(read_task(batch.task_id(Stage.EMBED)))
    if task is not None:
        context.ledger.run(cancel(task.queue, task.id))


def _end_without_rows(context: StepContext, batch: Batch, to: BatchStatus) -> None:
    # Read again: since the round began another worker may have submitted the requests, and some may be done.
    now = context.ledger.run(read_batch(batch.id))
    if now is not None and now.status is batch.status and now.stages.get(Stage.EMBED) is None:
        without_rows(context, now, to)


def _submit_job(context: StepContext, batch: Batch, stage: Stage) -> None:
    if is_pause(batch.now_ms, batch.again_ms):
        return
    task = job(batch, stage)
    bring_in(context, [task])
    now = context.ledger.run(read_batch(batch.id))
    _forget_if_ended(context, task, now.status if now else None)


def _forget_if_ended(context: StepContext, task: NewTask, status: BatchStatus | None) -> None:
    if status is None or status.terminal:
        # It ended, and was cleaned up, after it had been read: nobody else would end this task.
        context.ledger.run(forget(task.queue, task.task_id))


_STEPS: Mapping[BatchStatus, Callable[[StepContext, Batch], None]] = {
    BatchStatus.VALIDATING: _validating,
    BatchStatus.IN_PROGRESS: _in_progress,
    BatchStatus.FINALIZING: _finalizing,
    BatchStatus.CANCELLING: _cancelling,
    **dict.fromkeys([status for status in BatchStatus if status.terminal], clean_up),
}

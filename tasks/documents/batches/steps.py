"""Moving batches from one stage to the next.

Everything here may be done twice, at the same time, by workers that die in between: tasks have ids that follow from the
batch's, a move names the states it may start from, and what is tidied up is looked for again until it is gone.
"""

from collections.abc import Callable, Mapping

import orjson

from tasks.documents.batches import ending
from tasks.documents.batches.submissions import embedding, job
from tasks.documents.context import StepContext
from tasks.documents.rounds import Round
from tasks.documents.submitting import submit
from tasks.ledger import State, Submission, operations
from tasks.ledger.batch_operations import move_batch, open_batches, read_batch, read_batches
from tasks.ledger.batches import Batch, BatchFault, BatchStatus, Stage
from tasks.ledger.committed import read_committed

_BATCHES_AT_ONCE = 100


def step_batches(context: StepContext) -> None:
    """Takes one step with each of some open batches. Raises what the last one raised that could not take its step."""
    ids = context.ledger.run(open_batches(_BATCHES_AT_ONCE))
    Round(context, read_batches, step).take(ids)


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
    if context.postponed.waits(batch.task_id(Stage.EMBED)):
        return  # the submission names every unit of the batch: reading, building and sending it is not for nothing
    committed = context.ledger.run(read_committed(batch.task_id(Stage.VALIDATE)))
    if committed is None or not committed.task.state.terminal:
        return
    if not committed.units:
        ending.came_to_nothing(context, batch, Stage.VALIDATE, committed)
        return
    found = orjson.loads(committed.units[0].data)
    if "errors" in found:
        ending.failed(context, batch, [BatchFault(**fault) for fault in found["errors"]])
        return
    task = embedding(batch, found, context.settings)
    if not submit(context, task):
        return
    fields = {"model": found["model"], "total": found["lines"]}
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
    task = context.ledger.run(operations.read_task(batch.task_id(Stage.EMBED))) if state.terminal else None
    if task is None or not task.state.terminal:
        return
    if (
        task.model_changed and batch.now_ms < batch.expires_ms
    ):  # the file is of one model: every row is encoded by the one that is served now
        context.ledger.run(operations.forget(task.model, task.id))
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
        ending.assembled(context, batch)


def _cancelling(context: StepContext, batch: Batch) -> None:
    if batch.stages.get(Stage.EMBED) is None:  # no request was begun
        _end_without_rows(context, batch, BatchStatus.CANCELLED)
        return
    if batch.stages[Stage.EMBED].terminal:
        _finalizing(context, batch)
        return
    task = context.ledger.run(operations.read_task(batch.task_id(Stage.EMBED)))
    if task is not None:
        context.ledger.run(operations.cancel(task.model, task.id))


def _end_without_rows(context: StepContext, batch: Batch, to: BatchStatus) -> None:
    # Read again: since the round began another worker may have submitted the requests, and some may be done.
    now = context.ledger.run(read_batch(batch.id))
    if now is not None and now.status is batch.status and now.stages.get(Stage.EMBED) is None:
        ending.without_rows(context, now, to)


def _submit_job(context: StepContext, batch: Batch, stage: Stage) -> None:
    if context.postponed.waits(batch.task_id(stage)) or batch.now_ms < batch.again_ms:
        return
    task = job(batch, stage)
    if submit(context, task):
        now = context.ledger.run(read_batch(batch.id))
        _forget_if_ended(context, task, now.status if now else None)


def _forget_if_ended(context: StepContext, task: Submission, status: BatchStatus | None) -> None:
    if status is None or status.terminal:
        # It ended, and was tidied up, after it had been read: nobody else would end this task.
        context.ledger.run(operations.forget(task.model, task.task_id))


_STEPS: Mapping[BatchStatus, Callable[[StepContext, Batch], None]] = {
    BatchStatus.VALIDATING: _validating,
    BatchStatus.IN_PROGRESS: _in_progress,
    BatchStatus.FINALIZING: _finalizing,
    BatchStatus.CANCELLING: _cancelling,
    **dict.fromkeys([status for status in BatchStatus if status.terminal], ending.tidy_up),
}

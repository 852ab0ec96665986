"""The ends of a batch: its files, its last state, and what is left of it removed."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tasks.documents import deaths
from tasks.documents.context import StepContext
from tasks.ledger import DOCUMENTS, ItemError, operations
from tasks.ledger.batch_operations import close_batch, faults_text, losses_field, move_batch
from tasks.ledger.batches import KINDS, Batch, BatchFault, BatchStatus, FileKind, Stage
from tasks.ledger.committed import Committed, read_committed
from tasks.ledger.file_operations import put_batch_file
from tasks.ledger.files import FileRecord, Purpose
from worker_config.settings import Settings

_NO_OUTCOME = ItemError("internal_error", "A job left no outcome.")
_OPEN = [status for status in BatchStatus if not status.terminal]


def came_to_nothing(context: StepContext, batch: Batch, stage: Stage, committed: Committed) -> None:
    """A job has ended without an outcome: it is tried again after a pause, or the batch fails."""
    error = committed.errors.get(0, _NO_OUTCOME)
    losses = batch.losses.get(stage, 0)
    if not deaths.again(error, losses):
        failed(context, batch, [BatchFault(error.code, error.message)])
        return
    again_ms = batch.now_ms + round(deaths.pause_s(losses) * 1000)
    fields = {losses_field(stage): losses + 1, "again_at": again_ms}
    if context.ledger.run(move_batch(batch.id, batch.status, only_from=[batch.status], fields=fields))[0]:
        context.ledger.run(operations.forget(DOCUMENTS, batch.task_id(stage)))


def failed(context: StepContext, batch: Batch, faults: Sequence[BatchFault]) -> None:
    """The batch failed as a whole; one that is being cancelled is cancelled all the same."""
    to = BatchStatus.CANCELLED if batch.status is BatchStatus.CANCELLING else BatchStatus.FAILED
    # The task that knew how many were done is about to be forgotten.
    counts = {"completed": batch.completed, "failed": batch.failed}
    _end(context, batch, to, {"errors": faults_text(faults), **counts})


def without_rows(context: StepContext, batch: Batch, to: BatchStatus) -> None:
    """The batch ended before any of its requests was begun. How many there are is said where it is known."""
    fields: dict[str, str | int] = {"completed": 0, "failed": 0}
    committed = context.ledger.run(read_committed(batch.task_id(Stage.VALIDATE)))
    if committed is not None and committed.units:
        found = orjson.loads(committed.units[0].data)
        if "errors" not in found:
            fields |= {"model": found["model"], "total": found["lines"]}
    # From this state alone: where another worker has begun the requests meanwhile, some may be done.
    context.ledger.run(move_batch(batch.id, to, only_from=[batch.status], fields=fields))


def assembled(context: StepContext, batch: Batch) -> None:
    """The last job has ended: its files are given to the owner, and the batch ends as was decided before."""
    committed = context.ledger.run(read_committed(batch.task_id(Stage.ASSEMBLE)))
    if committed is None or not committed.task.state.terminal:
        return
    if not committed.units:
        came_to_nothing(context, batch, Stage.ASSEMBLE, committed)
        return
    found = orjson.loads(committed.units[0].data)
    fields: dict[str, str | int] = {name: found[name] for name in ("model", "total", "completed", "failed", "tokens")}
    for kind in KINDS:
        if found[kind] is not None:
            record = _record(batch, kind, found[kind], context.settings)
            if not context.ledger.run(put_batch_file(record, batch.id)):
                return  # another worker has ended the batch, and its owner may have deleted the file since
            fields[f"{kind}_file"] = record.id
    to = BatchStatus.CANCELLED if batch.status is BatchStatus.CANCELLING else batch.ends_as
    _end(context, batch, to, fields)


def tidy_up(context: StepContext, batch: Batch) -> None:
    """Removes what only a running batch needs: its tasks, its index, its parts."""
    for stage in batch.stages:
        task = context.ledger.run(operations.read_task(batch.task_id(stage)))
        if task is not None:
            context.ledger.run(operations.forget(task.model, task.id))
    context.storage.delete(batch.folder)
    context.ledger.run(close_batch(batch.id))


def _end(context: StepContext, batch: Batch, to: BatchStatus, fields: Mapping[str, str | int]) -> None:
    # The next step tidies up: one that dies in between leaves nothing behind for ever.
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

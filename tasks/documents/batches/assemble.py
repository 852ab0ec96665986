"""The job that writes down what came of each request of a batch: an output file, and an error file if there is need."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from tasks.documents.batches.refusal import Refusal
from tasks.documents.batches.render import Outcome, Row, render_line
from tasks.documents.context import JobContext
from tasks.documents.embedded_rows import EmbeddedRows
from tasks.errors import NotStored
from tasks.ledger import ItemError
from tasks.ledger.batch_operations import read_batch
from tasks.ledger.batches import KINDS, Batch, BatchStatus, FileKind, Stage
from tasks.ledger.committed import Committed, read_committed
from tasks.ledger.files import stored_name
from tasks.ledger.parts import RowOutcome
from tasks.ledger.storage import Writer

_EXPIRED = ItemError("batch_expired", "This request could not be executed before the completion window expired.")
_CANCELLED = ItemError("batch_cancelled", "This request was not executed: the batch was cancelled before.")
_PART_LOST = ItemError("batch_part_lost", "What came of this request is no longer in the storage. Send it again.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What VALIDATE found: where the rows are, and how many."""

    source: str
    index: str
    model: str
    lines: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """One run of the job: what there is to walk through, and what becomes of rows that nobody came to."""

    context: JobContext
    plan: Plan
    embedded: Committed
    leftover: ItemError

    def outcomes(self) -> Iterator[tuple[Row, Outcome]]:
        """Every row in order, each once, with what became of it."""
        rows = EmbeddedRows(
            self.context.storage,
            self.plan.source,
            self.plan.index,
            self.plan.lines,
            self.embedded,
            self.leftover,
            self.context.progress,
            lost=_PART_LOST,
        )
        for number, line, outcome in rows:
            refusal = Refusal.of_line(line)
            if refusal is None:
                yield Row.of_line(number, line), outcome
            else:  # whatever became of the others
                yield Row(number, refusal.custom_id, base64=False), refusal.error


def assemble_batch(context: JobContext, batch_id: str) -> bytes:
    """The outcome as JSON: `completed`, `failed`, `tokens`, and `output` and `error`: stored name and size, or null.

    Raises:
        NotStored: the rows, or what came of them, are gone.
        Unavailable: nothing was written that anybody sees.
    """
    batch = context.ledger.run(read_batch(batch_id))
    if batch is None:
        raise NotStored("The batch is no longer there.")
    validated = context.ledger.run(read_committed(batch.task_id(Stage.VALIDATE)))
    embedded = context.ledger.run(read_committed(batch.task_id(Stage.EMBED)))
    if validated is None or not validated.units or embedded is None:
        raise NotStored("What came of the requests is no longer there.")
    found = orjson.loads(validated.units[0].data)
    plan = Plan(found["source"], found["index"], found["model"], found["lines"])
    leftover = _CANCELLED if batch.status is BatchStatus.CANCELLING else _EXPIRED
    return _write(batch, Assembly(context, plan, embedded, leftover))


def _write(batch: Batch, assembly: Assembly) -> bytes:
    context, plan = assembly.context, assembly.plan
    names = {kind: stored_name(batch.file_id(kind), context.fence) for kind in KINDS}
    rows, tokens = dict.fromkeys(KINDS, 0), 0
    with contextlib.ExitStack() as stack:
        files: dict[FileKind, Writer] = {k: stack.enter_context(context.storage.writing(n)) for k, n in names.items()}
        for row, outcome in assembly.outcomes():
            kind, line = render_line(batch.id, row, outcome, plan.model)
            files[kind].write(line)
            rows[kind] += 1
            tokens += outcome.tokens if isinstance(outcome, RowOutcome) else 0
        written = {kind: {"stored": names[kind], "size": file.size_bytes} for kind, file in files.items()}
    for kind in KINDS:
        if not rows[kind]:
            context.storage.delete(names[kind])
    present = {kind: written[kind] if rows[kind] else None for kind in KINDS}
    counts = {"total": plan.lines, "completed": rows["output"], "failed": rows["error"], "tokens": tokens}
    return orjson.dumps(counts | {"model": plan.model} | present)

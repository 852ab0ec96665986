"""The job that writes down what came of each request of a batch: an output file, and an error file if there is need."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson

from tasks.documents.batches.render import Outcome, Row, render_line
from tasks.documents.context import JobContext
from tasks.errors import NotStored
from tasks.ledger import ItemError
from tasks.ledger.batch_operations import read_batch
from tasks.ledger.batches import Batch, BatchStatus, Stage, file_id
from tasks.ledger.committed import Committed, CommittedUnit, read_committed
from tasks.ledger.files import stored_name
from tasks.ledger.parts import PartReference, RowError, read_part
from tasks.ledger.rows import UnitReference, read_rows
from tasks.ledger.storage import Writer

_ROWS_AT_ONCE = 64
_EXPIRED = ItemError(
    "batch_expired", "This request could not be executed before the completion window expired."
)
_CANCELLED = ItemError("batch_cancelled", "This request was not executed: the batch was cancelled before.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What VALIDATE found: where the rows are, and how many."""

    source: str
    index: str
    model: str
    lines: int


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
    return _write(context, batch, plan, embedded)


def _write(context: JobContext, batch: Batch, plan: Plan, embedded: Committed) -> bytes:
    names = {kind: stored_name(file_id(batch.id, kind), context.fence) for kind in ("output", "error")}
    counts = {"completed": 0, "failed": 0, "tokens": 0}
    sizes: dict[str, int] = {}
    with contextlib.ExitStack() as stack:
        files: dict[str, Writer] = {k: stack.enter_context(context.storage.writing(n)) for k, n in names.items()}
        for row, outcome in _outcomes(context, batch, plan, embedded):
            kind, line = render_line(batch.id, row, outcome, plan.model)
            files[kind].write(line)
            counts["completed" if kind == "output" else "failed"] += 1
            counts["tokens"] += outcome.tokens if not isinstance(outcome, ItemError) else 0
        sizes = {kind: file.size_bytes for kind, file in files.items()}
    for kind, size in sizes.items():
        if not size:
            context.storage.delete(names[kind])
    written = {kind: {"stored": names[kind], "size": size} if size else None for kind, size in sizes.items()}
    return orjson.dumps(counts | written | {"total": plan.lines, "model": plan.model})


def _outcomes(
    context: JobContext, batch: Batch, plan: Plan, embedded: Committed
) -> Iterator[tuple[Row, Outcome]]:
    """Every row in order, each once, with what became of it."""
    leftover = _CANCELLED if batch.status is BatchStatus.CANCELLING else _EXPIRED
    at = 0
    for unit in embedded.units:
        yield from _without_part(context, plan, at, unit.first, embedded.errors, leftover)
        yield from _with_part(context, plan, unit)
        at = unit.first + unit.items
    yield from _without_part(context, plan, at, plan.lines, embedded.errors, leftover)


def _with_part(context: JobContext, plan: Plan, unit: CommittedUnit) -> Iterator[tuple[Row, Outcome]]:
    outcomes = read_part(context.storage, PartReference.from_json(unit.data))
    rows = _rows(context, plan, unit.first, unit.items)
    yield from zip(rows, outcomes, strict=True)


def _without_part(
    context: JobContext, plan: Plan, first: int, end: int, errors: Mapping[int, ItemError], leftover: ItemError
) -> Iterator[tuple[Row, Outcome]]:
    for start in range(first, end, _ROWS_AT_ONCE):
        for row in _rows(context, plan, start, min(_ROWS_AT_ONCE, end - start)):
            error = errors.get(row.number)
            yield row, RowError(error.code, error.message, status=422) if error else leftover


def _rows(context: JobContext, plan: Plan, first: int, count: int) -> list[Row]:
    context.progress()
    lines = read_rows(context.storage, UnitReference(plan.source, plan.index, first), first, count)
    return [Row.of_line(first + offset, line) for offset, line in enumerate(lines)]

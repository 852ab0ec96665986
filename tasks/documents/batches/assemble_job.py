"""The job that writes the output file of a batch, and its error file if a request failed."""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

import orjson

from tasks.documents.batches.check import Refusal
from tasks.documents.context import JobContext
from tasks.documents.embedded_rows import EmbeddedRows
from tasks.errors import NotStored
from tasks.item import TextError
from tasks.ledger.operations import read_committed
from tasks.ledger.task import Committed
from tasks.records.batches import KINDS, Batch, BatchStatus, FileKind, Stage, read_batch
from tasks.records.files import stored_name
from tasks.storage.storage import Writer
from tasks.storage.vector_part import RowError, RowOutcome
from tasks.wire.embedding_list import embedding_list, items
from tasks.wire.embeddings_body import wants_base64

_ID_CHARS = 24
_EXPIRED = TextError(
    "batch_expired", "This request could not be executed before the completion window expired. Send it again."
)
_CANCELLED = TextError(
    "batch_cancelled", "This request was not executed: the batch was cancelled before. Send it again."
)
_PART_LOST = TextError("batch_part_lost", "What came of this request is no longer in the storage. Send it again.")

Outcome: TypeAlias = RowOutcome | RowError | TextError
"""The outcome of a row: its vectors, the error that the endpoint would have answered, or why it was never executed."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of VALIDATE: the place of the rows, and their number."""

    source: str
    index: str
    model: str
    lines: int


@dataclass(frozen=True, slots=True)
class Row:
    """One request of a batch: its number from 0, the caller's own id, and whether it wants base64."""

    number: int
    custom_id: str
    base64: bool

    @classmethod
    def from_line(cls, number: int, line: bytes) -> Self:
        """From a line that has been checked."""
        request = orjson.loads(line)
        return cls(number, request["custom_id"], wants_base64(request["body"]))


def assemble_batch(context: JobContext, batch_id: str) -> bytes:
    """The outcome as JSON: `completed`, `failed`, `tokens`, and `output` and `error`: stored name and size, or null.

    Raises:
        NotStored: the rows, or what came of them, are gone.
        Unavailable: nothing became visible.
    """
    batch = context.ledger.run(read_batch(batch_id))
    if batch is None:
        raise NotStored("The batch is no longer there.")
    validated = context.ledger.run(read_committed(batch.task_id(Stage.VALIDATE)))
    embedded = context.ledger.run(read_committed(batch.task_id(Stage.EMBED)))
    rows = validated.returned() if validated is not None else None
    if rows is None or embedded is None:
        raise NotStored("What came of the requests is no longer there.")
    plan = Plan(rows["source"], rows["index"], rows["model"], rows["lines"])
    leftover = _CANCELLED if batch.status is BatchStatus.CANCELLING else _EXPIRED
    return _write(context, batch, plan, _outcomes(context, plan, embedded, leftover))


def _outcomes(
    context: JobContext, plan: Plan, embedded: Committed, leftover: TextError
) -> Iterator[tuple[Row, Outcome]]:
    """Every row once, in order, with its outcome. `leftover`: the outcome of rows that no worker has encoded."""
    rows = EmbeddedRows(
        context.storage, plan.source, plan.index, plan.lines, embedded, leftover, context.progress, lost=_PART_LOST
    )
    for number, line, outcome in rows:
        refusal = Refusal.from_line(line)
        if refusal is None:
            yield Row.from_line(number, line), outcome
        else:  # also in a batch that expired or was cancelled
            yield Row(number, refusal.custom_id, base64=False), refusal.error


def _write(context: JobContext, batch: Batch, plan: Plan, outcomes: Iterable[tuple[Row, Outcome]]) -> bytes:
    names = {kind: stored_name(batch.file_id(kind), context.fence) for kind in KINDS}
    rows, tokens = dict.fromkeys(KINDS, 0), 0
    with contextlib.ExitStack() as stack:
        files: dict[FileKind, Writer] = {k: stack.enter_context(context.storage.writing(n)) for k, n in names.items()}
        for row, outcome in outcomes:
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


# ---- one line of an output or error file, as OpenAI's clients expect it ----------------------------------------------


_LINE_BREAKS = tuple((mark.encode(), rb"\u%04x" % ord(mark)) for mark in "\x85\u2028\u2029")
"""JSON may hold them as they are, in strings alone, and Python's `splitlines` takes them for the end of a line."""


def render_line(batch_id: str, row: Row, outcome: Outcome, model: str) -> tuple[FileKind, bytes]:
    """The file of a row, and its line with the line break. Rendering it again gives the same bytes."""
    kind, line = _rendered(batch_id, row, outcome, model)
    for raw, escaped in _LINE_BREAKS:
        line = line.replace(raw, escaped)
    return kind, line


def _rendered(batch_id: str, row: Row, outcome: Outcome, model: str) -> tuple[FileKind, bytes]:
    unique = hashlib.sha256(f"{batch_id} {row.number}".encode()).hexdigest()[:_ID_CHARS]
    head = orjson.dumps({"id": f"batch_req_{unique}", "custom_id": row.custom_id})[:-1]
    if isinstance(outcome, TextError):
        error = orjson.dumps({"code": outcome.code, "message": outcome.message})
        return "error", head + b',"response":null,"error":' + error + b"}\n"
    failed = outcome.error if isinstance(outcome, RowOutcome) else outcome
    if failed is None and isinstance(outcome, RowOutcome):
        return "output", head + _response(200, unique, _answer(row, outcome, model))
    assert isinstance(failed, RowError)  # noqa: S101 - for the type checker: the cases above are the others
    return "error", head + _response(failed.status, unique, _refusal(failed))


def _response(status: int, unique: str, body: bytes) -> bytes:
    head = orjson.dumps({"status_code": status, "request_id": f"req_{unique}"})[:-1]
    return b',"response":' + head + b',"body":' + body + b'},"error":null}\n'


def _answer(row: Row, outcome: RowOutcome, model: str) -> bytes:
    entries = items(outcome.vectors, base64=row.base64, truncated=outcome.truncated)
    return embedding_list(entries, model=model, tokens=outcome.tokens)


def _refusal(error: RowError) -> bytes:
    kind = "invalid_request_error" if error.status < 500 else "server_error"  # noqa: PLR2004 - HTTP's own border
    return orjson.dumps({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})

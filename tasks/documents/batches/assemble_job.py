"""The job that writes the output file of a batch, and its error file if a request failed."""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence

import orjson

from tasks.documents.batches.line_rows import Line, LineError, Outcome, answered
from tasks.documents.context import JobContext
from tasks.documents.embedded_rows import EmbeddedRows
from tasks.errors import NotStored
from tasks.item import TextError, Vector
from tasks.ledger.read import read_result
from tasks.records.batches import KINDS, Batch, BatchStatus, FileKind, Stage, read_batch
from tasks.records.files import stored_name
from tasks.storage.storage import Writer
from tasks.wire.embedding_list import embedding_list, items

_ID_CHARS = 24
_EXPIRED = TextError(
    "batch_expired", "This request could not be executed before the completion window expired. Send it again."
)
_CANCELLED = TextError(
    "batch_cancelled", "This request was not executed: the batch was cancelled before. Send it again."
)
_PART_LOST = TextError("batch_part_lost", "What came of this request is no longer in the storage. Send it again.")


def assemble_batch(context: JobContext, batch_id: str) -> bytes:
    """The outcome as JSON: `completed`, `failed`, `tokens`, and `output` and `error`: stored name and size, or null.

    Raises:
        NotStored: the rows, or what came of them, are gone.
        Unavailable: nothing became visible.
    """
    batch = context.ledger.run(read_batch(batch_id))
    if batch is None:
        raise NotStored("The batch is no longer there.")
    validated = context.ledger.run(read_result(batch.task_id(Stage.VALIDATE)))
    embedded = context.ledger.run(read_result(batch.task_id(Stage.EMBED)))
    plan = validated.returned() if validated is not None else None
    if plan is None or embedded is None:
        raise NotStored("What came of the requests is no longer there.")
    leftover = _CANCELLED if batch.status is BatchStatus.CANCELLING else _EXPIRED
    place = context.storage, plan["source"], plan["index"], plan["texts"]
    texts = EmbeddedRows(*place, embedded, leftover, context.progress, lost=_PART_LOST)
    return _write(context, batch, plan["model"], answered(texts))


def _write(context: JobContext, batch: Batch, model: str, outcomes: Iterable[tuple[Line, Outcome]]) -> bytes:
    names = {kind: stored_name(batch.file_id(kind), context.fence) for kind in KINDS}
    lines, tokens = dict.fromkeys(KINDS, 0), 0
    with contextlib.ExitStack() as stack:
        files: dict[FileKind, Writer] = {k: stack.enter_context(context.storage.writing(n)) for k, n in names.items()}
        for line, outcome in outcomes:
            kind, rendered = render_line(batch.id, line, outcome, model)
            files[kind].write(rendered)
            lines[kind] += 1
            tokens += _tokens(outcome) if isinstance(outcome, list) else 0
        written = {kind: {"stored": names[kind], "size": file.size_bytes} for kind, file in files.items()}
    for kind in KINDS:
        if not lines[kind]:
            context.storage.delete(names[kind])
    present = {kind: written[kind] if lines[kind] else None for kind in KINDS}
    total = sum(lines.values())
    counts = {"total": total, "completed": lines["output"], "failed": lines["error"], "tokens": tokens}
    return orjson.dumps(counts | {"model": model} | present)


# ---- one line of an output or error file, as OpenAI's clients expect it ----------------------------------------------


_LINE_BREAKS = tuple((mark.encode(), rb"\u%04x" % ord(mark)) for mark in "\x85\u2028\u2029")
"""JSON may hold them as they are, in strings alone, and Python's `splitlines` takes them for the end of a line."""


def render_line(batch_id: str, line: Line, outcome: Outcome, model: str) -> tuple[FileKind, bytes]:
    """The file of a line, and its answer with the line break. Rendering it again gives the same bytes."""
    kind, rendered = _rendered(batch_id, line, outcome, model)
    for raw, escaped in _LINE_BREAKS:
        rendered = rendered.replace(raw, escaped)
    return kind, rendered


def _rendered(batch_id: str, line: Line, outcome: Outcome, model: str) -> tuple[FileKind, bytes]:
    unique = hashlib.sha256(f"{batch_id} {line.number}".encode()).hexdigest()[:_ID_CHARS]
    head = orjson.dumps({"id": f"batch_req_{unique}", "custom_id": line.custom_id})[:-1]
    if isinstance(outcome, TextError):
        error = orjson.dumps({"code": outcome.code, "message": outcome.message})
        return "error", head + b',"response":null,"error":' + error + b"}\n"
    if isinstance(outcome, LineError):
        return "error", head + _response(outcome.status, unique, _refusal(outcome))
    return "output", head + _response(200, unique, _answer(line, outcome, model))


def _response(status: int, unique: str, body: bytes) -> bytes:
    head = orjson.dumps({"status_code": status, "request_id": f"req_{unique}"})[:-1]
    return b',"response":' + head + b',"body":' + body + b'},"error":null}\n'


def _answer(line: Line, texts: Sequence[Vector], model: str) -> bytes:
    vectors = (text.vector for text in texts if text.vector is not None)
    truncated = {index for index, text in enumerate(texts) if text.truncated}
    return embedding_list(items(vectors, base64=line.base64, truncated=truncated), model=model, tokens=_tokens(texts))


def _tokens(texts: Sequence[Vector]) -> int:
    return sum(text.tokens for text in texts)


def _refusal(error: LineError) -> bytes:
    kind = "invalid_request_error" if error.status < 500 else "server_error"  # noqa: PLR2004 - HTTP's own border
    return orjson.dumps({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})

"""Writes the output file of a batch, and its error file if a request failed."""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from tasks.batches.line_rows import Line, LineError, Outcome, answered
from tasks.ingestion.context import StageContext
from tasks.ingestion.embedded_rows import EmbeddedRows
from tasks.item import TextError, Vector
from tasks.ledger.read import read_result
from tasks.records.batches import KINDS, Batch, FileKind, counts_of_lines
from tasks.records.files import FileRecord, Purpose
from tasks.records.jobs import JobStatus, Stage
from tasks.storage.storage import Writer
from tasks.wire.embedding_list import embedding_list, items
from worker_config.settings import Settings

_ID_CHARS = 24
_EXPIRED = TextError(
    "batch_expired", "This request could not be executed before the completion window expired. Send it again."
)
_CANCELLED = TextError(
    "batch_cancelled", "This request was not executed: the batch was cancelled before. Send it again."
)
_PART_LOST = TextError("batch_part_lost", "What came of this request is no longer in the storage. Send it again.")


def assemble_output(context: StageContext) -> dict[str, Any]:
    """The `files` that were written, as records, and the `counts` of the batch.

    Raises:
        NotStored: the rows are gone.
        Unavailable: nothing became visible.
    """
    batch = context.job
    page = batch.pages[context.number]
    embedded = context.ledger.run(read_result(batch.record.task_id(context.number, Stage.EMBED)))
    if embedded is None:
        return {"again": True}
    leftover = _CANCELLED if batch.record.stop is JobStatus.CANCELLED else _EXPIRED
    rows = (context.storage, page.rows, page.chunks, embedded, leftover, context.progress, _PART_LOST)
    return _write(context, answered(EmbeddedRows(*rows)), page.chunks)


def _write(context: StageContext, outcomes: Iterable[tuple[Line, Outcome]], texts: int) -> dict[str, Any]:
    batch = context.job
    assert isinstance(batch, Batch)  # noqa: S101 - it was read as one
    names = {kind: context.name(batch.file_id(kind)) for kind in KINDS}
    lines, tokens = dict.fromkeys(KINDS, 0), 0
    with contextlib.ExitStack() as stack:
        files: dict[FileKind, Writer] = {k: stack.enter_context(context.storage.writing(n)) for k, n in names.items()}
        for line, outcome in outcomes:
            kind, rendered = render_line(batch.id, line, outcome, batch.model)
            files[kind].write(rendered)
            lines[kind] += 1
            tokens += _tokens(outcome) if isinstance(outcome, list) else 0
        sizes = {kind: file.size_bytes for kind, file in files.items()}
    for kind in KINDS:
        if not lines[kind]:
            context.storage.delete(names[kind])
    made = {kind: _record(batch, kind, names[kind], sizes[kind], context.settings) for kind in KINDS if lines[kind]}
    counts = counts_of_lines(sum(lines.values()), lines["output"], lines["error"], texts, tokens)
    return {"obj": "", "counts": [*counts], "files": {kind: record.model_dump() for kind, record in made.items()}}


def _record(batch: Batch, kind: FileKind, stored: str, size_bytes: int, settings: Settings) -> FileRecord:
    lives_s = batch.output_expires_s or settings.batch_ttl_s  # from when the record is made
    return FileRecord(
        id=batch.file_id(kind),
        owner=batch.owner,
        filename=f"{batch.id}_{kind}.jsonl",
        purpose=Purpose.BATCH_OUTPUT,
        size_bytes=size_bytes,
        created_ms=batch.files_ms,
        expires_ms=batch.files_ms + round(lives_s * 1000),
        stored=stored,
    )


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

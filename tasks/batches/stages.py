"""The stages of a batch: its one page is checked (PARSE), encoded (EMBED), and written down (LOAD)."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import orjson

from tasks.batches.assemble_output import assemble_output
from tasks.batches.check_lines import FileCheck, FileLimits, FileLine, KnownModels, ids_of, split_lines, with_ids
from tasks.errors import NotReady
from tasks.ingestion.context import StageContext
from tasks.ingestion.rows_writer import writing_rows
from tasks.item import cost
from tasks.ledger.overview import overview
from tasks.records.batches import Batch
from tasks.records.documents import read_lines
from tasks.records.files import FileRecord, Purpose, read_file
from tasks.records.jobs import JobError, Page
from worker_config.settings import Settings

__all__ = ["assemble_output", "check_file"]

_PROGRESS_EVERY = 1000


def check_file(context: StageContext) -> dict[str, Any]:
    """The `model`, `rows` and `pieces` of a good file, `documents` (its lines) and `chunks` (its texts); or `errors`.

    Raises:
        Unavailable: it cannot be checked now.
    """
    batch, page = context.job, context.job.pages[context.number]
    assert isinstance(batch, Batch)  # noqa: S101 - it was read as one
    if page.src:
        return _cut_again(context, page)
    record = context.ledger.run(read_file(batch.input_file_id))
    fault = _file_fault(batch, record, context.settings)
    only = context.ledger.run(read_file(batch.only_file_id)) if batch.only_file_id else None
    if batch.only_file_id and (only is None or only.owner != batch.owner):
        message = (
            "The error file of the batch that is tried again is gone: nobody knows any more which requests failed."
        )
        fault = JobError("invalid_request", message, "error_file_id")
    if record is None or fault is not None:
        return {"errors": [asdict(fault)] if fault else []}
    # A copy, because the caller may delete the file, or it may expire, long before the last line is answered; and it
    # says of each line that the endpoint would refuse why, so that this is decided once.
    rows = context.name("rows")
    check = FileCheck(_models(context), FileLimits.from_settings(context.settings))
    with writing_rows(context.storage, rows) as writer:
        for line in _requests(context, record, only, check.limits.max_line_bytes):
            kept = check.add(line)
            if check.full:
                break
            for row, tokens in kept:
                writer.add(row, tokens, check.piece_cost)
        check.finish()
    if check.faults:
        context.storage.delete(rows)
        return {"errors": [asdict(fault) for fault in check.faults]}
    counts = {"documents": check.lines, "chunks": writer.rows, "chunk_tokens": 0}
    return {"obj": "", "rows": rows, "model": check.model, **counts, "pieces": writer.pieces}


def _cut_again(context: StageContext, page: Page) -> dict[str, Any]:
    """The same for the copy of a file that was good: pieces for the model that is served now."""
    name, rows = context.job.model, context.name("rows")
    queue = context.ledger.run(overview(name))[name]
    if queue.model is None:
        raise NotReady("No worker has loaded this model yet.")
    with writing_rows(context.storage, rows) as writer:
        for row in read_lines(context.storage, page.src):
            text = orjson.loads(row).get("text")
            writer.add(row, cost(text, queue.model.max_tokens) if text else 1, queue.piece_cost)
            if writer.rows % _PROGRESS_EVERY == 0:
                context.progress()
    counts = {"documents": page.documents, "chunks": writer.rows, "chunk_tokens": 0}
    return {"obj": "", "rows": rows, "model": name, **counts, "pieces": writer.pieces}


def _read(context: StageContext, record: FileRecord) -> Iterator[bytes]:
    for chunk in context.storage.chunks(record.stored):
        context.progress()
        yield chunk


def _requests(
    context: StageContext, record: FileRecord, only: FileRecord | None, max_line_bytes: int
) -> Iterator[FileLine]:
    lines = split_lines(_read(context, record), max_line_bytes)
    return lines if only is None else with_ids(lines, ids_of(split_lines(_read(context, only), max_line_bytes)))


def _file_fault(batch: Batch, record: FileRecord | None, settings: Settings) -> JobError | None:
    if record is None or record.owner != batch.owner:
        message = "Cannot find the input file, or this API key does not have access to it."
        return JobError("invalid_request", message, "file_id")
    if record.purpose is not Purpose.BATCH:
        message = "The input file was not uploaded for a batch; upload it with the purpose 'batch'."
        return JobError("invalid_file_purpose", message, "file_id")
    if record.size_bytes > settings.max_file_bytes:
        most = f"{settings.max_file_bytes:,} bytes (EMBEDQ_MAX_FILE_BYTES)"
        message = f"The input file has more than {most}. Split it."
        return JobError("file_too_large", message, "file_id")
    return None


def _models(context: StageContext) -> KnownModels:
    own = context.settings.served_names
    return KnownModels(own, context.ledger.run(overview(own[0])))

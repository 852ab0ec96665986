"""The job that checks a batch's input file and writes its texts as rows."""

from collections.abc import Iterator
from dataclasses import asdict

import orjson

from tasks.documents.batches.check import FileCheck, FileLimits, FileLine, KnownModels, ids_of, split_lines, with_ids
from tasks.documents.context import JobContext
from tasks.ledger.overview import overview
from tasks.records.batches import Batch, BatchFault, read_batch
from tasks.records.files import FileRecord, Purpose, read_file
from tasks.storage.row_file import writing_rows
from worker_config.settings import Settings


def validate_batch(context: JobContext, batch_id: str) -> bytes:
    """The outcome as JSON: `source`, `index`, `model`, `lines`, `texts` and `pieces` of a good file, or `errors`.

    Raises:
        Unavailable: it cannot be checked now.
    """
    batch = context.ledger.run(read_batch(batch_id))
    if batch is None or batch.status.terminal:
        return _failed([BatchFault("internal_error", "The batch is no longer there.")])
    record = context.ledger.run(read_file(batch.input_file_id))
    fault = _file_fault(batch, record, context.settings)
    only = context.ledger.run(read_file(batch.only_file_id)) if batch.only_file_id else None
    if batch.only_file_id and (only is None or only.owner != batch.owner):
        message = (
            "The error file of the batch that is tried again is gone: nobody knows any more which requests failed."
        )
        fault = BatchFault("invalid_request", message, "error_file_id")
    if record is None or fault is not None:
        return _failed([fault] if fault else [])
    # A copy, because the caller may delete the file, or it may expire, long before the last line is answered; and it
    # says of each line that the endpoint would refuse why, so that this is decided once.
    source, index = (f"{batch.folder}{name}.{context.fence}" for name in ("source", "index"))
    check = FileCheck(_models(context), FileLimits.from_settings(context.settings))
    with writing_rows(context.storage, source, index) as rows:
        for row in _checked(_requests(context, record, only, check.limits.max_line_bytes), check):
            rows.add(row)
    if check.faults:
        context.storage.delete(source)
        context.storage.delete(index)
        return _failed(check.faults)
    counts = {"lines": check.lines, "texts": rows.rows}
    return orjson.dumps({"source": source, "index": index, "model": check.model, **counts, "pieces": check.pieces})


def _read(context: JobContext, record: FileRecord) -> Iterator[bytes]:
    for chunk in context.storage.chunks(record.stored):
        context.progress()
        yield chunk


def _requests(
    context: JobContext, record: FileRecord, only: FileRecord | None, max_line_bytes: int
) -> Iterator[FileLine]:
    lines = split_lines(_read(context, record), max_line_bytes)
    return lines if only is None else with_ids(lines, ids_of(split_lines(_read(context, only), max_line_bytes)))


def _checked(lines: Iterator[FileLine], check: FileCheck) -> Iterator[bytes]:
    for line in lines:
        kept = check.add(line)
        if check.full:
            break
        yield from kept
    check.finish()


def _file_fault(batch: Batch, record: FileRecord | None, settings: Settings) -> BatchFault | None:
    if record is None or record.owner != batch.owner:
        message = "Cannot find the input file, or this API key does not have access to it."
        return BatchFault("invalid_request", message, "file_id")
    if record.purpose is not Purpose.BATCH:
        message = "The input file was not uploaded for a batch; upload it with the purpose 'batch'."
        return BatchFault("invalid_file_purpose", message, "file_id")
    if record.size_bytes > settings.max_batch_file_bytes:
        most = f"{settings.max_batch_file_bytes:,} bytes (EMBEDQ_MAX_BATCH_FILE_BYTES)"
        message = f"The input file has more than {most}. Split it."
        return BatchFault("file_too_large", message, "file_id")
    return None


def _models(context: JobContext) -> KnownModels:
    own = context.settings.served_names
    return KnownModels(own, context.ledger.run(overview(own[0])))


def _failed(faults: list[BatchFault]) -> bytes:
    return orjson.dumps({"errors": [asdict(fault) for fault in faults]})

"""Batches: create, list, read, cancel, try again, delete."""

from collections.abc import Mapping
from typing import Any

from api.idempotency import digests_of, key_digests
from api.schemas import batches as schemas
from api.schemas.batches import Batch
from api.served_models import ServedModels
from api.services.owned import change_job, own, room_of
from api.waiting.why_waiting import why_waiting
from tasks.errors import Conflict, NotFound
from tasks.ledger.client import AsyncLedger
from tasks.records import batches
from tasks.records.api_keys import Key
from tasks.records.batches import BatchRecord, BatchStatus, is_batch_id, new_batch_id, read_batch
from tasks.records.files import read_files
from tasks.records.jobs import create_job, find_job, read_tasks_of
from tasks.records.moves import Move, cancel_job, delete_job
from worker_config.logs import subject_is_task
from worker_config.settings import Settings

RETRY_OF = "retry_of"
"""Key in the metadata of a batch that tries another one again: the id of that one."""
_UNKNOWN = "No batch found with this id. Use the id from the answer to POST /v1/batches."
_NO_ERROR_FILE = "Nobody knows any more which of its requests failed; send them in a new batch."


class BatchService:
    """The batches of this service. What takes an id raises `NotFound` where the caller has no such batch."""

    def __init__(self, ledger: AsyncLedger, models: ServedModels, settings: Settings) -> None:
        self._ledger = ledger
        self._models = models
        self._settings = settings

    async def create(self, key: Key, body: schemas.NewBatch, idempotency_key: str | None) -> Batch:
        """Starts a batch over a file. Faults of the file show later. A repetition returns the same batch.

        Raises:
            Refused: the key was used for another batch.
            TooMany, Forbidden, StorageFull: the caller may start none now.
        """
        name, digest = key_digests(idempotency_key, body.digested) or ("", "")
        asked = {
            "input_file_id": body.input_file_id,
            "completion_window": body.completion_window,
            "metadata": body.metadata,
            "output_expires_s": body.output_expires_after.seconds if body.output_expires_after else None,
        }
        return await self._start(key, _new(key.owner, asked, body.window_ms, self._settings, name), digest)

    async def read(self, key: Key, batch_id: str) -> Batch:
        """A batch as it is now."""
        [batch] = await self._ledger.run(read_tasks_of([await self._own(key, batch_id)]))
        shown = Batch.model_validate(batch)
        [shown.waiting] = await why_waiting(self._ledger, self._models, [batch])
        return shown

    async def cancel(self, key: Key, batch_id: str) -> Batch:
        """Cancels a batch; what was finished will be in its files. Raises `Conflict` if there is nothing to cancel."""

        def cancelled(job: batches.Batch) -> Move | None:
            if job.status.terminal and job.status is not BatchStatus.CANCELLED:
                raise Conflict("batch_already_ended", f"Cannot cancel a batch with status '{job.status}'.")
            return cancel_job(job)

        await change_job(self._ledger, lambda: self._own(key, batch_id), cancelled)
        return await self.read(key, batch_id)

    async def retry(self, key: Key, batch_id: str) -> Batch:
        """Starts a batch over those requests of an ended one that have no result: all of them where it has no files.

        A repetition returns the same batch.

        Raises:
            Conflict: it has not ended; all have a result.
            NotFound: a file that is needed is gone.
            TooMany, Forbidden, StorageFull: the caller may start none now.
        """
        batch = await self._own(key, batch_id)
        name, digest = digests_of(f"\0retry {batch.id}", b"")  # of characters that no caller's key can have
        new = _again(batch, self._settings, name)
        made = await self._ledger.run(find_job(BatchRecord, key.owner, (name, digest)))
        if made is not None:  # a repetition needs the files no more
            return await self.read(key, made)
        await self._require_files(new)
        return await self._start(key, new, digest)

    async def delete(self, key: Key, batch_id: str) -> None:
        """Deletes the record of an ended batch. Its input, output and error files stay. Raises `Conflict`."""

        def deleted(job: batches.Batch) -> Move | None:
            if not job.status.terminal:
                message = (
                    f"Cannot delete a batch with status '{job.status}'. Cancel it, and delete it when it has ended."
                )
                raise Conflict("batch_not_ended", message)
            return delete_job(job)

        await change_job(self._ledger, lambda: self._own(key, batch_id), deleted)

    async def _start(self, key: Key, new: BatchRecord, digest: str) -> Batch:
        limits = {"batches": self._settings.max_open_jobs, "jobs": key.limits.open_jobs}
        create = create_job(new, room_of(key, self._settings, **limits), digest)
        return await self.read(key, await self._ledger.run(create))

    async def _require_files(self, new: BatchRecord) -> None:
        ids = [new.request[name] for name in ("input_file_id", "only_file_id") if name in new.request]
        found = await self._ledger.run(read_files(ids))
        for file_id, file in zip(ids, found, strict=True):
            if file is None or file.owner != new.owner:
                advice = (
                    "Send its requests in a new batch." if file_id == new.request["input_file_id"] else _NO_ERROR_FILE
                )
                raise NotFound("file_not_found", f"The file {file_id} of this batch is gone. {advice}", param="id")

    async def _own(self, key: Key, batch_id: str) -> batches.Batch:
        batch = None
        if is_batch_id(batch_id):
            subject_is_task(batch_id)
            batch = await self._ledger.run(read_batch(batch_id))
        there = None if batch is None or batch.deleted else batch
        return own(key, there, NotFound("batch_not_found", _UNKNOWN, param="id"))


def _new(owner: str, asked: Mapping[str, Any], window_ms: int, settings: Settings, alias: str) -> BatchRecord:
    return BatchRecord(
        id=new_batch_id(),
        owner=owner,
        request={name: value for name, value in asked.items() if value is not None},
        window_ms=window_ms,
        ttl_ms=round(settings.batch_ttl_s * 1000),
        alias=alias,
    )


def _again(batch: batches.Batch, settings: Settings, alias: str) -> BatchRecord:
    if not batch.status.terminal:
        raise Conflict(
            "batch_not_ended",
            f"Only a batch that has ended can be tried again; the status of this one is '{batch.status}'.",
        )
    if batch.output_file_id and not batch.error_file_id:
        raise Conflict("batch_already_ended", "None of its requests has failed, so there is nothing to try again.")
    asked = {
        **batch.record.request,
        "metadata": {**(batch.metadata or {}), RETRY_OF: batch.id},
        "only_file_id": batch.error_file_id or batch.only_file_id,
    }
    return _new(batch.owner, asked, batch.record.window_ms, settings, alias)

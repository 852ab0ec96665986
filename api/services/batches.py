"""Batches: create, list, read, cancel, try again, delete."""

from api.idempotency import digests_of, key_digests
from api.schemas import batches as schemas
from api.schemas.batches import Batch
from api.served_models import ServedModels
from api.services.owned import own, room_of
from api.waiting.why_waiting import why_waiting
from tasks.errors import Conflict, NotFound
from tasks.ledger.client import AsyncLedger
from tasks.records import batches
from tasks.records.api_keys import Key
from tasks.records.batches import BatchStatus, NewBatch, is_batch_id, new_batch_id
from tasks.records.files import read_files
from tasks.records.jobs import RecordKind, find_record
from worker_config.settings import Settings
from worker_config.subject import subject_is_task

RETRY_OF = "retry_of"
"""Key in the metadata of a batch that tries another one again: the id of that one."""
_UNKNOWN = "No batch found with this id. Use the id from the answer to POST /v1/batches."
_NO_ERROR_FILE = "Nobody knows any more which of its requests failed; send them in a new batch."
_CANCELLABLE = [status for status in BatchStatus if not status.terminal and status is not BatchStatus.CANCELLING]


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
        new = NewBatch(
            id=new_batch_id(),
            owner=key.owner,
            input_file_id=body.input_file_id,
            completion_window=body.completion_window,
            window_ms=body.window_ms,
            ttl_ms=round(self._settings.batch_ttl_s * 1000),
            metadata=body.metadata,
            output_expires_s=body.output_expires_after.seconds if body.output_expires_after else None,
            key=key_digests(idempotency_key, body.digested),
        )
        return await self._start(key, new)

    async def read(self, key: Key, batch_id: str) -> Batch:
        """A batch as it is now."""
        batch = await self._own(key, batch_id)
        shown = Batch.model_validate(batch)
        [shown.waiting] = await why_waiting(self._ledger, self._models, [batch])
        return shown

    async def cancel(self, key: Key, batch_id: str) -> Batch:
        """Cancels a batch; what was finished will be in its files. Raises `Conflict` if there is nothing to cancel."""
        await self._own(key, batch_id)
        move = batches.move_batch(batch_id, BatchStatus.CANCELLING, only_from=_CANCELLABLE)
        _, status = await self._ledger.run(move)
        if status not in {BatchStatus.CANCELLING, BatchStatus.CANCELLED, None}:
            raise Conflict("batch_already_ended", f"Cannot cancel a batch with status '{status}'.")
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
        digests = digests_of(f"\0retry {batch.id}", b"")  # of characters that no caller's key can have
        new = _again(batch, self._settings, digests)
        made = await self._ledger.run(find_record(RecordKind.BATCH, key.owner, digests))
        if made is not None:  # a repetition needs the files no more
            return await self.read(key, made)
        await self._require_files(new)
        return await self._start(key, new)

    async def delete(self, key: Key, batch_id: str) -> None:
        """Deletes the record of an ended batch. Its input, output and error files stay. Raises `Conflict`."""
        await self._own(key, batch_id)
        deleted, status = await self._ledger.run(batches.delete_batch(batch_id))
        if not deleted and status is not None:
            message = f"Cannot delete a batch with status '{status}'. Cancel it, and delete it when it has ended."
            raise Conflict("batch_not_ended", message)

    async def _start(self, key: Key, new: NewBatch) -> Batch:
        limits = {"batches": self._settings.max_open_batches, "jobs": key.limits.open_jobs}
        create = batches.create_batch(new, room_of(key, self._settings, **limits))
        return await self.read(key, await self._ledger.run(create))

    async def _require_files(self, new: NewBatch) -> None:
        ids = [file_id for file_id in (new.input_file_id, new.only_file_id) if file_id]
        found = await self._ledger.run(read_files(ids))
        for file_id, file in zip(ids, found, strict=True):
            if file is None or file.owner != new.owner:
                advice = "Send its requests in a new batch." if file_id == new.input_file_id else _NO_ERROR_FILE
                raise NotFound("file_not_found", f"The file {file_id} of this batch is gone. {advice}", param="id")

    async def _own(self, key: Key, batch_id: str) -> batches.Batch:
        batch = None
        if is_batch_id(batch_id):
            subject_is_task(batch_id)
            batch = await self._ledger.run(batches.read_batch(batch_id))
        there = None if batch is None or batch.deleted else batch
        return own(key, there, NotFound("batch_not_found", _UNKNOWN, param="id"))


def _again(batch: batches.Batch, settings: Settings, digests: tuple[str, str]) -> NewBatch:
    if not batch.status.terminal:
        raise Conflict(
            "batch_not_ended",
            f"Only a batch that has ended can be tried again; the status of this one is '{batch.status}'.",
        )
    if batch.output_file_id and not batch.error_file_id:
        raise Conflict("batch_already_ended", "None of its requests has failed, so there is nothing to try again.")
    return NewBatch(
        id=new_batch_id(),
        owner=batch.owner,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        window_ms=batch.expires_ms - batch.created_ms,
        ttl_ms=round(settings.batch_ttl_s * 1000),
        metadata={**(batch.metadata or {}), RETRY_OF: batch.id},
        output_expires_s=batch.output_expires_s,
        key=digests,
        only_file_id=batch.error_file_id or batch.only_file_id,
    )

"""Batches: OpenAI's calls, and another try of what failed."""

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from api.auth import BatchMaker, BatchReader
from api.dependencies import Batches, IdempotencyKey, Jobs, LargeJSON, PageQuery, json_body, read_json
from api.schemas.answer_parts import Deleted, Page
from api.schemas.batches import Batch, NewBatch

router = APIRouter(prefix="/v1/batches", tags=["batches"])


@router.post("", openapi_extra=json_body(NewBatch))
async def create_batch(
    key: BatchMaker,
    batches: Batches,
    body: Annotated[NewBatch, Depends(read_json(NewBatch))],
    idempotency_key: IdempotencyKey = None,
) -> Batch:
    """Starts a batch over an uploaded file. Faults of the file show later: the batch then fails."""
    return await batches.create(key, body, idempotency_key)


@router.get("", response_model=Page[Batch])
async def list_batches(key: BatchReader, jobs: Jobs, page: PageQuery, answer: LargeJSON) -> Response:
    """Lists the caller's batches, newest first."""
    return await answer(jobs.list(key, page, ["batch"]))


@router.get("/{batch_id}")
async def retrieve_batch(key: BatchReader, batches: Batches, batch_id: str) -> Batch:
    """Returns a batch as it is now."""
    return await batches.read(key, batch_id)


@router.post("/{batch_id}/cancel")
async def cancel_batch(key: BatchMaker, batches: Batches, batch_id: str) -> Batch:
    """Cancels a batch; what was finished will be in its files. Cancelling twice returns 200."""
    return await batches.cancel(key, batch_id)


@router.post("/{batch_id}/retry")
async def retry_batch(key: BatchMaker, batches: Batches, batch_id: str) -> Batch:
    """Starts a new batch over the requests of an ended one that have no result. A repetition returns the same batch.

    Its `metadata.retry_of` is the id of the ended one.
    """
    return await batches.retry(key, batch_id)


@router.delete("/{batch_id}")
async def delete_batch(key: BatchMaker, batches: Batches, batch_id: str) -> Deleted:
    """Deletes the record of an ended batch. Its input, output and error files stay."""
    await batches.delete(key, batch_id)
    return Deleted(id=batch_id, object="batch")

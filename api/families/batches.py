"""OpenAI's batches: many requests in one file, answered in files."""

import asyncio
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer, json_body
from api.answer.json_response import NO_STORE, Counts, ListOf, json_response, list_json, unix_seconds
from api.answer.why_waiting import WAITING, Waiting, why_waiting
from api.families.route import (
    BATCH_MAKING,
    BATCH_READING,
    CALLER,
    IDEMPOTENCY_KEY,
    JSON_BODY,
    Errors,
    Family,
    page_after,
    page_limit,
)
from api.parts import Services
from api.request.body import parse_object
from api.request.idempotency import checked_key, key_digests
from api.request.offload import offload_in_turn
from api.request.ownership import Resource, read_own, read_own_ids
from api.request.quota import quota
from api.request.schemas import MetadataKey, MetadataValue
from tasks import errors
from tasks.errors import BatchEnded, BatchOpen, BatchUnknown, FileUnknown, InvalidValue
from tasks.records import batches
from tasks.records.batches import (
    ENDPOINT,
    BatchStatus,
    NewBatch,
    create_batch,
    delete_batch,
    is_batch_id,
    list_batches,
    move_batch,
    new_batch_id,
    read_batch,
    read_batches_later,
)
from tasks.records.creation import RecordLimits
from tasks.records.files import read_files
from tasks.wire.validation import MAX_METADATA_PAIRS, validated
from worker_config.settings import Settings

# The body of `POST /v1/batches`, with the checks that pydantic cannot express.

MAX_WINDOW_H = 31 * 24
_WINDOW = re.compile(r"([1-9]\d{0,3})h")
_MS_PER_HOUR = 3_600_000

Short = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class OutputLife(BaseModel):
    """How long the files live that the batch makes, counted from when they are made."""

    model_config = ConfigDict(strict=True, extra="ignore")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class BatchBody(BaseModel):
    """Body of `POST /v1/batches`. Unknown fields are ignored, `null` counts as absent."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={
            "examples": [{"input_file_id": "file-019a…", "endpoint": ENDPOINT, "completion_window": "24h"}]
        },
    )

    input_file_id: Short = Field(description="A file uploaded with the purpose `batch`.")
    endpoint: Short = Field(
        description="The only call that batches can make here.", json_schema_extra={"enum": [ENDPOINT]}
    )
    completion_window: Short = Field(
        description=f"`24h`; any whole number of hours up to {MAX_WINDOW_H}.",
        json_schema_extra={"pattern": f"^{_WINDOW.pattern}$"},
    )
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        None, max_length=MAX_METADATA_PAIRS, description="Kept with the batch."
    )
    output_expires_after: OutputLife | None = None

    def window_ms(self) -> int:
        """The completion window's length; raises `InvalidValue`."""
        window = _WINDOW.fullmatch(self.completion_window)
        if window is None or int(window[1]) > MAX_WINDOW_H:
            raise InvalidValue(
                f"completion_window must be '24h', or another whole number of hours up to '{MAX_WINDOW_H}h'.",
                param="completion_window",
            )
        return int(window[1]) * _MS_PER_HOUR

    def require_endpoint(self) -> None:
        """Raises `InvalidValue` when the endpoint is one that batches cannot call."""
        if self.endpoint != ENDPOINT:
            raise InvalidValue(f"Invalid value for endpoint. Supported values: '{ENDPOINT}'.", param="endpoint")


RETRY_OF = "retry_of"
"""Key in the metadata of a batch that tries another one again: the id of that one."""
_NO_ERROR_FILE = "Nobody knows any more which of its requests failed; send them in a new batch."

# A batch from the body of a request, and as JSON.

BATCHES = Resource(
    "batch", is_batch_id, read_batch, BatchUnknown, "POST /v1/batches", is_deleted=lambda batch: batch.deleted
)


def new_batch(body: bytes, *, owner: str, idempotency_key: str | None, settings: Settings) -> NewBatch:
    """The batch that a `POST /v1/batches` asks for.

    Raises:
        RequestError: the subclass that says what is wrong with the body or the key.
    """
    parsed = validated(BatchBody, parse_object(body))
    parsed.require_endpoint()
    return NewBatch(
        id=new_batch_id(),
        owner=owner,
        input_file_id=parsed.input_file_id,
        completion_window=parsed.completion_window,
        window_ms=parsed.window_ms(),
        ttl_ms=round(settings.batch_ttl_s * 1000),
        metadata=parsed.metadata,
        output_expires_s=parsed.output_expires_after.seconds if parsed.output_expires_after else None,
        key=key_digests(checked_key(idempotency_key), body),
    )


def again(batch: batches.Batch, settings: Settings) -> NewBatch:
    """A batch over those requests of an ended one that have no result: all of them where it has no files.

    Raises:
        BatchOpen: it has not ended.
        BatchEnded: all have one.
    """
    if not batch.status.terminal:
        raise BatchOpen(f"Only a batch that has ended can be tried again; the status of this one is '{batch.status}'.")
    if batch.output_file_id and not batch.error_file_id:
        raise BatchEnded("None of its requests has failed, so there is nothing to try again.")
    metadata = {**(batch.metadata or {}), RETRY_OF: batch.id}
    return NewBatch(
        id=new_batch_id(),
        owner=batch.owner,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        window_ms=batch.expires_ms - batch.created_ms,
        ttl_ms=round(settings.batch_ttl_s * 1000),
        metadata=metadata if len(metadata) <= MAX_METADATA_PAIRS else batch.metadata,
        output_expires_s=batch.output_expires_s,
        key=key_digests(f"\0retry {batch.id}", b""),  # of characters that no caller's key can have
        only_file_id=batch.error_file_id or batch.only_file_id,
    )


def batch_json(batch: batches.Batch, waiting: dict[str, Any] | None = None) -> dict[str, Any]:
    """OpenAI's batch object, for orjson, and `waiting` (`why_waiting`). Times are Unix seconds."""
    times = {f"{status}_at": unix_seconds(batch.times.get(status)) for status in BatchStatus if status != "validating"}
    errors = list(batch.errors)  # orjson writes dataclasses itself, and there may be a thousand
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": ENDPOINT,
        **({"model": batch.model} if batch.model else {}),  # strict clients of OpenAI's schema take no null here
        "errors": {"object": "list", "data": errors} if errors else None,
        "input_file_id": batch.input_file_id,
        "completion_window": batch.completion_window,
        "status": batch.status.value,
        "output_file_id": batch.output_file_id,
        "error_file_id": batch.error_file_id,
        "created_at": unix_seconds(batch.created_ms),
        "expires_at": unix_seconds(batch.expires_ms),
        **times,
        "counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": _usage(batch.tokens),
        "metadata": dict(batch.metadata) if batch.metadata else None,
        "waiting": waiting,
    }


def _usage(tokens: int | None) -> dict[str, Any] | None:
    if tokens is None:
        return None
    return {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


# The answers as pydantic models. They document; `batch_json` renders, which is several times faster.


class BatchError(BaseModel):
    """One reason why a batch failed; `line` counts from 1."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    """All of them, at most 1,000."""

    object: Literal["list"]
    data: list[BatchError]


class CachedTokens(BaseModel):
    """Always 0 here."""

    cached_tokens: int


class ReasoningTokens(BaseModel):
    """Always 0 here."""

    reasoning_tokens: int


class BatchUsage(BaseModel):
    """Tokens that the model read for a batch."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Batch(BaseModel):
    """A batch. Times are Unix seconds; those of states that it has not reached are null."""

    id: str = Field(examples=["batch_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["batch"]
    endpoint: Literal["/v1/embeddings"]
    model: str = Field("", description="The model that its lines name; absent until they have been read.")
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    failed_at: int | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    counts: Counts = Field(description="As `request_counts`, by the name that it has in all jobs.")
    request_counts: Counts = Field(description="Requests, by what became of them.")
    usage: BatchUsage | None
    metadata: dict[str, str] | None
    waiting: Waiting | None = WAITING


class DeletedBatch(BaseModel):
    """Confirms that a batch is deleted."""

    id: str
    object: Literal["batch"]
    deleted: Literal[True]


class BatchList(ListOf[Batch]):
    """A page of batches, the newest first."""


router = Family("batches", bare=True)

_BATCH: Errors = (*CALLER, errors.BatchUnknown)

_LIST_TIMEOUT_S = 5.0
"""A page may hold thousands of error messages."""
_CANCELLABLE = [status for status in BatchStatus if not status.terminal and status is not BatchStatus.CANCELLING]


@router.describe(
    "POST",
    "/v1/batches",
    Answer(200, Batch),
    scopes=BATCH_MAKING,
    errors=(
        *JSON_BODY,
        errors.IdempotencyConflict,
        errors.BatchUnknown,
        errors.QuotaExceeded,
        errors.TooManyBatches,
        errors.KeyLimitReached,
        errors.StorageFull,
        errors.NotReplicated,
    ),
    reads=(IDEMPOTENCY_KEY,),
    body=json_body(BatchBody),
    slash=True,
)
async def create(request: Request) -> Response:
    """Starts a batch over an uploaded file. Faults of the file show later: the batch then fails."""
    services = Services.from_request(request)
    owner = services.owner(request)
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    wanted = await offload_in_turn(
        len(body), new_batch, body, owner=owner, idempotency_key=key, settings=services.settings
    )
    return await _create(services, request, wanted)


@router.describe(
    "GET",
    "/v1/batches",
    Answer(200, BatchList),
    scopes=BATCH_READING,
    errors=(*_BATCH, errors.RequestError),
    reads=(page_after("Last id of the page before."), page_limit("Batches in one page.")),
    slash=True,
)
async def list_own(request: Request) -> Response:
    """Lists the caller's batches, newest first."""
    services = Services.from_request(request)
    page = await read_own_ids(services, request, BATCHES, list_batches)
    if not page.items:
        return json_response(list_json([], more=page.more), NO_STORE)
    later = await services.ledger.run(read_batches_later(page.items), timeout_s=_LIST_TIMEOUT_S)
    listed = await asyncio.to_thread(later)
    waiting = await why_waiting(services.ledger, services.registry, listed)

    def render() -> Response:
        data = [batch_json(batch, why) for batch, why in zip(listed, waiting, strict=True)]
        return json_response(list_json(data, more=page.more), NO_STORE)

    return await asyncio.to_thread(render)


@router.describe("GET", "/v1/batches/{batch_id}", Answer(200, Batch), scopes=BATCH_READING, errors=_BATCH, slash=True)
async def read(request: Request, batch_id: str) -> Response:
    """Returns a batch as it is now."""
    return await _answer(Services.from_request(request), request, batch_id)


@router.describe(
    "POST",
    "/v1/batches/{batch_id}/cancel",
    Answer(200, Batch),
    scopes=BATCH_MAKING,
    errors=(*_BATCH, errors.BatchEnded, errors.NotReplicated),
    slash=True,
)
async def cancel(request: Request, batch_id: str) -> Response:
    """Cancels a batch; what was finished will be in its files. Cancelling twice returns 200."""
    services = Services.from_request(request)
    await read_own(services, request, BATCHES, batch_id)
    move = move_batch(batch_id, BatchStatus.CANCELLING, only_from=_CANCELLABLE)
    _, status = await services.ledger.run(move)
    if status not in {BatchStatus.CANCELLING, BatchStatus.CANCELLED, None}:
        raise BatchEnded(f"Cannot cancel a batch with status '{status}'.")
    return await _answer(services, request, batch_id)


@router.describe(
    "POST",
    "/v1/batches/{batch_id}/retry",
    Answer(200, Batch),
    scopes=BATCH_MAKING,
    errors=(
        *_BATCH,
        errors.BatchOpen,
        errors.BatchEnded,
        errors.FileUnknown,
        errors.QuotaExceeded,
        errors.TooManyBatches,
        errors.KeyLimitReached,
        errors.StorageFull,
        errors.NotReplicated,
    ),
    slash=True,
)
async def retry(request: Request, batch_id: str) -> Response:
    """Starts a new batch over the requests of an ended one that have no result. A repetition returns the same batch."""
    services = Services.from_request(request)
    batch = await read_own(services, request, BATCHES, batch_id)
    wanted = again(batch, services.settings)
    files = [file_id for file_id in (wanted.input_file_id, wanted.only_file_id) if file_id]
    found = await services.ledger.run(read_files(files))
    for file_id, file in zip(files, found, strict=True):
        if file is None or file.owner != batch.owner:
            advice = "Send its requests in a new batch." if file_id == wanted.input_file_id else _NO_ERROR_FILE
            raise FileUnknown(f"The file {file_id} of this batch is gone. {advice}", param="id")
    return await _create(services, request, wanted)


@router.describe(
    "DELETE",
    "/v1/batches/{batch_id}",
    Answer(200, DeletedBatch),
    scopes=BATCH_MAKING,
    errors=(*_BATCH, errors.BatchOpen, errors.NotReplicated),
    slash=True,
)
async def delete(request: Request, batch_id: str) -> Response:
    """Deletes the record of an ended batch. Its input, output and error files stay."""
    services = Services.from_request(request)
    await read_own(services, request, BATCHES, batch_id)
    deleted, status = await services.ledger.run(delete_batch(batch_id))
    if not deleted and status is not None:
        raise BatchOpen(f"Cannot delete a batch with status '{status}'. Cancel it, and delete it when it has ended.")
    return json_response({"id": batch_id, "object": "batch", "deleted": True}, NO_STORE)


async def _create(services: Services, request: Request, wanted: NewBatch) -> Response:
    key = services.keys.limits(wanted.owner)
    limits = RecordLimits(services.settings.max_open_batches, quota(services.settings, key), key.open_jobs)
    memory_percent = services.settings.max_redis_memory_percent
    batch_id = await services.ledger.run(create_batch(wanted, limits, max_memory_percent=memory_percent))
    return await _answer(services, request, batch_id)


async def _answer(services: Services, request: Request, batch_id: str) -> Response:
    batch = await read_own(services, request, BATCHES, batch_id)
    [waiting] = await why_waiting(services.ledger, services.registry, [batch])
    return json_response(batch_json(batch, waiting), NO_STORE)

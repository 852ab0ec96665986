"""Batches for routes: made from a body, rendered."""

from hashlib import sha256
from typing import Any

import orjson

from api.batch_schemas import BatchBody
from api.body import parse_object
from api.owned import Kind
from api.quota import quota
from api.validation import checked
from tasks.errors import BatchUnknown, InvalidValue
from tasks.ledger.batch_operations import list_batches, read_batch
from tasks.ledger.batches import ENDPOINT, Batch, BatchAdmission, BatchStatus, NewBatch, is_batch_id, new_batch_id
from worker_config.settings import Settings

BATCHES = Kind("batch", is_batch_id, read_batch, list_batches, BatchUnknown, "POST /v1/batches")
_MAX_KEY_CHARS = 255
_DIGEST_CHARS = 32


def new_batch(body: bytes, *, owner: str, idempotency_key: str | None, settings: Settings) -> NewBatch:
    """The batch that a `POST /v1/batches` asks for.

    Raises:
        RequestError: the subclass that says what is wrong with the body or the key.
    """
    parsed = checked(BatchBody, parse_object(body), max_inputs=settings.max_inputs)
    parsed.require_endpoint()
    if idempotency_key is not None and not (1 <= len(idempotency_key) <= _MAX_KEY_CHARS):
        raise InvalidValue(f"Idempotency-Key must have 1 to {_MAX_KEY_CHARS} characters.", param="Idempotency-Key")
    name = idempotency_key or parsed.idempotency_key
    return NewBatch(
        id=new_batch_id(),
        owner=owner,
        input_file_id=parsed.input_file_id,
        completion_window=parsed.completion_window,
        window_ms=parsed.window_ms(),
        ttl_ms=round(settings.batch_ttl_s * 1000),
        metadata=parsed.metadata,
        output_expires_s=parsed.output_expires_after.seconds if parsed.output_expires_after else None,
        key=(_digest(name.encode()), _request_digest(parsed)) if name else None,
    )


def admission(settings: Settings) -> BatchAdmission:
    """What must hold for another batch to be taken."""
    return BatchAdmission(settings.max_open_batches, settings.max_redis_memory_percent, quota(settings))


def batch_json(batch: Batch) -> dict[str, Any]:
    """OpenAI's batch object, for orjson. Times are Unix seconds."""
    times = {f"{status}_at": _seconds(batch.times.get(status)) for status in BatchStatus if status != "validating"}
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
        "created_at": _seconds(batch.created_ms),
        "expires_at": _seconds(batch.expires_ms),
        **times,
        "request_counts": {"total": batch.total, "completed": batch.completed, "failed": batch.failed},
        "usage": _usage(batch.tokens),
        "metadata": dict(batch.metadata) if batch.metadata else None,
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


def _seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // 1000


def _request_digest(body: BatchBody) -> str:
    return _digest(orjson.dumps(body.model_dump(exclude={"idempotency_key"}), option=orjson.OPT_SORT_KEYS))


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:_DIGEST_CHARS]

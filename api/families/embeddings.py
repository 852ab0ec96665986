"""OpenAI's embeddings call: synchronous over the queue, or a task for callers who prefer not to wait."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from api.answer import task_json, vectors
from api.answer.description import Answer, ResponseHeader, header, json_body
from api.answer.json_response import JSON
from api.answer.rate_limit_headers import RATE_LIMITS
from api.error_responses import ItemRefused
from api.families.route import CLIENT_TIMEOUTS, KEY_EFFECT, ONLINE_CALL, TEXTS, Family
from api.parts import Services
from api.request.key_limits import room_of, taken_by
from api.request.memory_budget import LargeResponse
from api.request.offload import offload, offload_in_turn
from api.request.prefer import Preference, applied, patience_s, preference
from api.request.token_input import VocabularyNotLoaded
from api.waiting.synchronous import encode_now, task_or_result
from tasks import errors, ledger
from tasks.wire.embeddings_body import EmbeddingsBody
from worker_config.subject import span

R = TypeVar("R")


async def _read_with_vocabulary(size_bytes: int, patience_s: float, make: Callable[[], R]) -> R:
    """What `make` returns; in a thread if the body is large.

    Raises:
        RequestError: what `make` raises, or that token numbers cannot be decoded here.
        NotReady: they cannot be within `patience_s`.
    """
    try:
        return await offload_in_turn(size_bytes, make)
    except VocabularyNotLoaded as error:
        await error.vocabulary.load(patience_s)
    return await offload_in_turn(size_bytes, make)


router = Family("embeddings", bare=True)

_TOOK = ResponseHeader("openai-processing-ms", "In the server.", {"type": "integer"})
_APPLIED = ResponseHeader("Preference-Applied", "What of `Prefer` was done.")


@router.describe(
    "POST",
    "/v1/embeddings",
    Answer(200, vectors.EmbeddingList, headers=(_TOOK, *RATE_LIMITS, _APPLIED)),
    Answer(
        202,
        task_json.Task,
        description="With `Prefer: respond-async`.",
        headers=(task_json.LOCATION, task_json.RETRY_AFTER, task_json.ETAG, _APPLIED),
    ),
    scopes=ONLINE_CALL,
    errors=(
        *TEXTS,
        errors.TaskGone,
        errors.EncodingFailed,
        ItemRefused,
        errors.NotReady,
        errors.NotReplicated,
        errors.WaitTimeout,
    ),
    reads=(
        header(
            "Prefer",
            "`wait=<seconds>`, `respond-async`, or both: a task if the vectors are not there in time (RFC 7240).",
            example="respond-async",
        ),
        header("Idempotency-Key", f"{KEY_EFFECT} Read with `respond-async` only.", example="run-42"),
        *CLIENT_TIMEOUTS,
    ),
    body=json_body(EmbeddingsBody),
    slash=True,
)
async def create_embeddings(request: Request) -> Response:
    """Waits for the vectors of one or more texts and returns them in input order. A failed text fails the request."""
    started_s = time.perf_counter()
    services = Services.from_request(request)
    owner = services.owner(request)
    await services.door.check(owner)
    wishes = preference(request.headers)
    body = await services.bodies.read(request)
    wait_s = patience_s(request.headers, wishes.wait_s, services.settings.max_wait_s)
    end_s = time.monotonic() + wait_s
    if wishes.respond_async:
        key = request.headers.get("idempotency-key")
        make = partial(services.requests.openai_task, body, owner=owner, idempotency_key=key)
        submission, base64 = await _read_with_vocabulary(len(body), wait_s, make)
        outcome = await task_or_result(services, request, submission, end_s if wishes.wait_s else None)
        if isinstance(outcome, ledger.Task):
            return _accepted(services, outcome, applied(wishes, wait_s))
    else:
        make = partial(services.requests.synchronous, body, owner=owner, wait_s=wait_s)
        submission, base64 = await _read_with_vocabulary(len(body), wait_s, make)
        outcome = await encode_now(services, request, submission, end_s - time.monotonic())
    services.take_answer(request, vectors.size_bytes(outcome))
    with span("answer"):
        content = await offload(vectors.size_bytes(outcome), vectors.embedding_list, outcome, base64=base64)
    response = LargeResponse(content, media_type=JSON)
    took_ms = int((time.perf_counter() - started_s) * 1000)
    response.raw_headers += [
        (b"openai-processing-ms", b"%d" % took_ms),
        *services.rate_limits.headers(submission.queue, owner, room_of(request.scope), taken_by(request.scope)),
    ]
    if wishes.wait_s == wait_s:
        response.headers["preference-applied"] = applied(Preference(wait_s=wait_s), wait_s)
    return response


def _accepted(services: Services, task: ledger.Task, preferences: str) -> Response:
    retry_after_s = services.registry.retry_after_s(task)
    response = task_json.task_response(task, retry_after_s=retry_after_s, status=202, location=True)
    response.headers["preference-applied"] = preferences
    return response

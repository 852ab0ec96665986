"""OpenAI's embeddings call: synchronous over the queue, or a task for callers who prefer not to wait."""

import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from api import render, vectors
from api.answers import EmbeddingList, Task
from api.direct import direct_router
from api.draft import draft
from api.held import LargeResponse
from api.offload import offload
from api.openapi import json_body
from api.prefer import Preference, applied, patience_s, preference
from api.schemas import EmbeddingsBody
from api.services import Services
from api.synchronous import encode_now, task_or_result
from tasks import ledger

router = direct_router(tag="embeddings")


@router.post(
    "/v1/embeddings",
    responses={200: {"model": EmbeddingList}, 202: {"model": Task, "description": "With `Prefer: respond-async`."}},
    openapi_extra=json_body(EmbeddingsBody),
)
@router.post("/v1/embeddings/", include_in_schema=False)
@router.post("/embeddings", include_in_schema=False)
@router.post("/embeddings/", include_in_schema=False)
async def create_embeddings(request: Request) -> Response:
    """Vectors for one text or several, in input order. One failed text fails the request."""
    started_s = time.perf_counter()
    services = Services.of(request)
    owner = services.owner(request)
    await services.door.check()
    wishes = preference(request.headers)
    body = await services.bodies.read(request)
    wait_s = patience_s(request.headers, wishes.wait_s, services.settings.max_wait_s)
    end_s = time.monotonic() + wait_s
    if wishes.respond_async:
        key = request.headers.get("idempotency-key")
        make = partial(services.drafter.openai_task, body, owner=owner, idempotency_key=key)
        submission, base64 = await draft(services, len(body), wait_s, make)
        outcome = await task_or_result(services, request, submission, end_s if wishes.wait_s else None)
        if isinstance(outcome, ledger.Task):
            return _accepted(services, outcome, applied(wishes, wait_s))
    else:
        make = partial(services.drafter.synchronous, body, owner=owner, wait_s=wait_s)
        submission, base64 = await draft(services, len(body), wait_s, make)
        outcome = await encode_now(services, request, submission, end_s - time.monotonic())
    services.take_answer(request, vectors.size_bytes(outcome))
    content = await offload(vectors.size_bytes(outcome), vectors.embedding_list, outcome, base64=base64)
    response = LargeResponse(content, media_type="application/json")
    took_ms = int((time.perf_counter() - started_s) * 1000)
    response.raw_headers += [
        (b"openai-processing-ms", b"%d" % took_ms),
        *services.rate_limits.headers(submission.model, owner),
    ]
    if wishes.wait_s == wait_s:
        response.headers["preference-applied"] = applied(Preference(wait_s=wait_s), wait_s)
    return response


def _accepted(services: Services, task: ledger.Task, preferences: str) -> Response:
    retry_after_s = services.registry.retry_after_s(task)
    response = render.task_response(task, retry_after_s=retry_after_s, status=202, location=True)
    response.headers["preference-applied"] = preferences
    return response

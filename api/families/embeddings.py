"""OpenAI's embeddings call: synchronous over the queue."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from api.answer import vectors
from api.answer.description import Answer, ResponseHeader, json_body
from api.answer.json_response import JSON
from api.answer.rate_limit_headers import RATE_LIMITS
from api.error_responses import ItemRefused
from api.families.route import CLIENT_TIMEOUTS, ONLINE_CALL, TEXTS, Family
from api.parts import Services
from api.request.key_limits import room_of, taken_by
from api.request.memory_budget import LargeResponse
from api.request.offload import offload, offload_in_turn
from api.request.patience import patience_s
from api.token_input import VocabularyNotLoaded, load_vocabulary
from api.waiting.synchronous import encode_now
from tasks import errors
from tasks.wire.embeddings_body import EmbeddingsBody
from worker_config.subject import span

R = TypeVar("R")


async def _read_with_vocabulary(size_bytes: int, make: Callable[[], R]) -> R:
    """What `make` returns or raises; in a thread if the body is large."""
    try:
        return await offload_in_turn(size_bytes, make)
    except VocabularyNotLoaded:
        await load_vocabulary()
    return await offload_in_turn(size_bytes, make)


router = Family("embeddings", bare=True)

_TOOK = ResponseHeader("openai-processing-ms", "In the server.", {"type": "integer"})


@router.describe(
    "POST",
    "/v1/embeddings",
    Answer(200, vectors.EmbeddingList, headers=(_TOOK, *RATE_LIMITS)),
    scopes=ONLINE_CALL,
    errors=(
        *TEXTS,
        errors.EncodingFailed,
        ItemRefused,
        errors.NotReady,
        errors.NotReplicated,
        errors.WaitTimeout,
    ),
    reads=CLIENT_TIMEOUTS,
    body=json_body(EmbeddingsBody),
    slash=True,
)
async def create_embeddings(request: Request) -> Response:
    """Waits for the vectors of one or more texts and returns them in input order. A failed text fails the request."""
    started_s = time.perf_counter()
    services = Services.from_request(request)
    owner = services.owner(request)
    await services.door.check(owner)
    body = await services.bodies.read(request)
    wait_s = patience_s(request.headers, services.settings.max_wait_s)
    end_s = time.monotonic() + wait_s
    make = partial(services.requests.synchronous, body, owner=owner, wait_s=wait_s)
    submission, base64 = await _read_with_vocabulary(len(body), make)
    result = await encode_now(services, request, submission, end_s - time.monotonic())
    services.take_answer(request, vectors.size_bytes(result))
    with span("answer"):
        content = await offload(vectors.size_bytes(result), vectors.embedding_list, result, base64=base64)
    response = LargeResponse(content, media_type=JSON)
    took_ms = int((time.perf_counter() - started_s) * 1000)
    response.raw_headers += [
        (b"openai-processing-ms", b"%d" % took_ms),
        *services.rate_limits.headers(submission.queue, owner, room_of(request.scope), taken_by(request.scope)),
    ]
    return response

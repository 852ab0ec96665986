"""The calls of text-embeddings-inference (TEI), in its own forms, for clients that speak to such a server."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer, json_body
from api.answer.json_response import JSON, NO_STORE, json_response
from api.answer.vectors import matrix, size_bytes
from api.console_files import page
from api.error_responses import ItemFailed, ItemRefused
from api.families.route import ANY_KEY, CLIENT_TIMEOUTS, JSON_BODY, ONLINE_CALL, PUBLIC, Errors, Family
from api.parts import Services
from api.request.memory_budget import LargeResponse
from api.request.offload import offload, offload_in_turn
from api.request.patience import patience_s
from api.request.schemas import EmbedBody
from api.schemas.service import Live
from api.waiting.synchronous import encode_now
from tasks import errors
from tasks.errors import NotReady
from tasks.ledger import ModelEntry
from worker_config.subject import span


class TEIInfo(BaseModel):
    """The model and its limits, in the words of text-embeddings-inference."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[str, dict[str, str | None]] = Field(description="The pooling is not told: null.")
    max_concurrent_requests: int = Field(description="What admission lets wait, if every request were one token.")
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: Literal[True]
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


router = Family("text-embeddings-inference")

_VECTORS = Answer(200, list[list[float]])
_TEXTS: Errors = (
    *JSON_BODY,
    errors.EmptyInput,
    errors.EncodingFailed,
    errors.BacklogFull,
    errors.KeyLimitReached,
    errors.AboveKeyLimit,
    errors.WaitTimeout,
    ItemFailed,
    ItemRefused,
)


@router.describe(
    "GET",
    "/",
    Answer(200, Live, media_types=("text/html",)),
    scopes=PUBLIC,
)
async def root(request: Request) -> Response:
    """Answers 200 while the process's event loop turns, and a browser with the page of the console."""
    if "text/html" in request.headers.get("accept", ""):
        return await page()
    return json_response({"status": "live"}, NO_STORE)


@router.describe(
    "POST",
    "/embed",
    _VECTORS,
    scopes=ONLINE_CALL,
    errors=_TEXTS,
    reads=CLIENT_TIMEOUTS,
    body=json_body(EmbedBody),
    slash=True,
)
@router.describe(
    "POST", "/", _VECTORS, scopes=ONLINE_CALL, errors=_TEXTS, reads=CLIENT_TIMEOUTS, body=json_body(EmbedBody)
)
async def embed(request: Request) -> Response:
    """Returns the vectors of one or more texts by the server's own model, as a list of lists in input order."""
    services = Services.from_request(request)
    owner = services.owner(request)
    await services.door.check(owner)
    body = await services.bodies.read(request)
    wait_s = patience_s(request.headers, services.settings.max_wait_s)
    submission = await offload_in_turn(len(body), services.requests.embed, body, owner=owner, wait_s=wait_s)
    result = await encode_now(services, request, submission, wait_s)
    services.take_answer(request, size_bytes(result))
    with span("answer"):
        content = await offload(size_bytes(result), matrix, result)
    return LargeResponse(content, media_type=JSON)


@router.describe("GET", "/info", Answer(200, TEIInfo), scopes=ANY_KEY, errors=(NotReady,), slash=True)
async def info(request: Request) -> Response:
    """Returns the served model and its limits."""
    services = Services.from_request(request)
    services.owner(request)
    entry = services.registry.entry(services.registry.own_model)
    if entry is None:
        raise NotReady("No worker has loaded the model yet.", param="worker", retry_after_s=5)
    return json_response(_info(services, entry, request.app.version))


@router.describe("GET", "/health", Answer(200), scopes=PUBLIC, errors=(NotReady,), slash=True)
async def health(request: Request) -> Response:
    """Answers 200 while a worker serves the model, as of about a second ago. No other process is asked."""
    registry = Services.from_request(request).registry
    if not registry.redis_up or not registry.live_workers().get(registry.own_model):
        raise NotReady("unhealthy", retry_after_s=5)
    return Response(headers=NO_STORE)


def _info(services: Services, entry: ModelEntry, version: str) -> dict[str, object]:
    settings = services.settings
    return {
        "model_id": entry.model,
        "model_sha": entry.revision,
        "model_dtype": entry.precision,
        "served_model_name": entry.id,
        "model_type": {"embedding": {"pooling": None}},
        "max_concurrent_requests": services.registry.limit(entry.id),
        "max_input_length": entry.max_tokens,
        "max_batch_tokens": settings.unit_max_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_inputs,
        "auto_truncate": True,
        "tokenization_workers": services.registry.served(None).streams,
        "version": version,
        "sha": None,
        "docker_label": None,
    }

"""What routes ask for: services, headers, pages, bodies."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, BeforeValidator

from api.auth import known_key
from api.idempotency import HEADER, MAX_KEY_CHARS
from api.metrics import Metrics
from api.parts import Services
from api.request.offload import offload_in_turn
from api.request_limits import Holding
from api.schemas.common import PagePlace
from api.services.embeddings import EmbeddingService
from api.services.service import ServiceInfo
from api.services.tasks import TaskService
from api.waiting.subscription import until_gone
from tasks.records.api_keys import Key
from tasks.wire.validation import parse_object, validated

B = TypeVar("B", bound=BaseModel)

# Services: one for each resource, made in `api.app`.


def tasks_of(request: Request) -> TaskService:
    """The same."""
    return cast("TaskService", request.app.state.tasks)


def embeddings_of(request: Request) -> EmbeddingService:
    """The service, for the routes that take the request."""
    return cast("EmbeddingService", request.app.state.embeddings)


async def _embeddings(request: Request) -> EmbeddingService:
    return embeddings_of(request)  # a function that is not `async` would run in a thread


async def _tasks(request: Request) -> TaskService:
    return tasks_of(request)


async def _service(request: Request) -> ServiceInfo:
    return cast("ServiceInfo", request.app.state.service)


async def _series(request: Request) -> Metrics:
    return cast("Metrics", request.app.state.metrics)


Embeddings = Annotated[EmbeddingService, Depends(_embeddings)]
Tasks = Annotated[TaskService, Depends(_tasks)]
Service = Annotated[ServiceInfo, Depends(_service)]
Series = Annotated[Metrics, Depends(_series)]

# Headers and queries.

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=HEADER,
        description="Makes a repetition safe: the same key and body get the same object again.",
        min_length=1,
        max_length=MAX_KEY_CHARS,
        pattern="^[ -~]*$",
    ),
]


def _default_if_empty(default: object) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value == "" else value)


Limit = Annotated[int, _default_if_empty(20), Query(ge=1, le=100, description="Objects per page.")]
After = Annotated[
    str | None,
    _default_if_empty(None),
    Query(description="Id of the object behind which the page begins: `last_id` of the page before."),
]


async def _page(after: After = None, limit: Limit = 20) -> PagePlace:
    return PagePlace(after, limit)


PageQuery = Annotated[PagePlace, Depends(_page)]
WaitQuery = Annotated[
    float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the end. The server has a limit too.")
]

# Bodies. Behind the key: what FastAPI is told to read, it reads before any dependency runs. And by our own parser,
# which names the place of what is wrong and refuses half a surrogate pair, which no answer could repeat.


async def _small_body(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[bytes]:
    parts = cast("Services", request.app.state.services)
    with parts.bodies.budget.held_by(key.owner) as held:
        yield await parts.bodies.read(request, held)


def read_json(kind: type[B]) -> Callable[..., Awaitable[B]]:
    """The dependency that reads a JSON body of this kind; in the document it stands by `json_body`.

    `Annotated[schemas.NewKey, Depends(read_json(schemas.NewKey))]`. The dependency raises the `RequestError` that names
    the field and the fix.
    """

    async def read(body: Annotated[bytes, Depends(_small_body)]) -> B:
        return await offload_in_turn(len(body), lambda: validated(kind, parse_object(body)))

    return read


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that takes a JSON body of this kind, in which `null` counts as absent."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if name not in required and {"type": "null"} not in field.get("anyOf", ()):
            about = {key: field.pop(key) for key in ("title", "description", "default") if key in field}
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


# The caller's connection, and the answer on it.


async def _answer(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[Holding]:
    with cast("Services", request.app.state.services).answers.held_by(key.owner) as held:
        yield held


Answer = Annotated[Holding, Depends(_answer)]
"""Has the bytes of the answer until the last one is sent."""


async def _gone(request: Request) -> Callable[[], Awaitable[None]]:
    return partial(until_gone, request.receive)


Gone = Annotated[Callable[[], Awaitable[None]], Depends(_gone)]
"""Returns when the client has closed the connection. The body must have been read before."""

"""What routes ask for: services, headers, pages, bodies."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Depends, Header, Query, Request, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema

from api.auth import known_key, require_still_known
from api.error_responses import CallerGone
from api.idempotency import ABOUT, HEADER, KEY_SCHEMA, checked_key
from api.load_limits import Held, LargeResponse, ListTurns, read_body
from api.metrics import Metrics
from api.offload import offload
from api.schemas.answer_parts import PagePlace
from api.services.batches import BatchService
from api.services.datasets import DatasetService
from api.services.embeddings import EmbeddingService
from api.services.files import FileService, Reserved
from api.services.ingestions import IngestionService
from api.services.jobs import JobService
from api.services.keys import KeyService
from api.services.service import ServiceInfo
from api.services.tasks import TaskService
from api.uploads import Download, Upload, download, received
from api.waiting.subscription import until_gone
from tasks.records.api_keys import Key
from tasks.wire.validation import parse_object, validated

B = TypeVar("B", bound=BaseModel)

# Services: one for each resource, made in `api.parts`.


def embeddings_of(request: Request) -> EmbeddingService:
    """The service, for the routes that take the request."""
    return cast("EmbeddingService", request.app.state.embeddings)


def tasks_of(request: Request) -> TaskService:
    """The same."""
    return cast("TaskService", request.app.state.tasks)


def _of_app(name: str) -> Any:
    async def held(request: Request) -> Any:  # a function that is not `async` would run in a thread
        return getattr(request.app.state, name)

    return Depends(held)


Embeddings = Annotated[EmbeddingService, _of_app("embeddings")]
Tasks = Annotated[TaskService, _of_app("tasks")]
Datasets = Annotated[DatasetService, _of_app("datasets")]
Service = Annotated[ServiceInfo, _of_app("service")]
Series = Annotated[Metrics, _of_app("metrics")]
Files = Annotated[FileService, _of_app("files")]
Batches = Annotated[BatchService, _of_app("batches")]
Ingestions = Annotated[IngestionService, _of_app("ingestions")]
Jobs = Annotated[JobService, _of_app("jobs")]
ApiKeys = Annotated[KeyService, _of_app("key_service")]

# Headers and queries.


IdempotencyKey = Annotated[
    str | None,
    Header(alias=HEADER, description=ABOUT),
    AfterValidator(checked_key),
    WithJsonSchema(KEY_SCHEMA),
]


def _default_if_empty(default: object) -> BeforeValidator:
    return BeforeValidator(lambda value: default if value == "" else value)


Limit = Annotated[int, Field(ge=1, le=100), _default_if_empty(20), Query(description="Objects per page.")]
After = Annotated[
    str | None,
    _default_if_empty(None),
    Query(description="Id of the object behind which the page begins: `last_id` of the page before."),
]


_SMALL = {f"{limit}" for limit in range(1, 11)}


async def _in_turn(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[None]:
    small = request.query_params.get("limit") in _SMALL
    async with cast("ListTurns", request.app.state.list_turns).of(key.owner, small=small):
        yield


InTurn = Annotated[None, Depends(_in_turn, scope="function")]
"""Of routes that read a list: the answer is sent when the turn is over."""


async def _page(_turn: InTurn, after: After = None, limit: Limit = 20) -> PagePlace:
    return PagePlace(after, limit)


PageQuery = Annotated[PagePlace, Depends(_page)]
FileLimit = Annotated[int, _default_if_empty(10_000), Query(ge=1, le=10_000, description="Files per page.")]
OrderQuery = Annotated[Literal["asc", "desc"], _default_if_empty("desc"), Query(description="By time of creation.")]
WaitQuery = Annotated[
    float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the end. The server has a limit too.")
]

# Bodies. Behind the key: what FastAPI is told to read, it reads before any dependency runs. And by our own parser,
# which names the place of what is wrong and refuses half a surrogate pair, which no answer could repeat.


async def _small_body(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[bytes]:
    state = request.app.state
    with closing(Held(state.bodies, key.owner)) as held:
        body = await read_body(request, state.settings.max_body_bytes, held)
        require_still_known(request, key)
        yield body


SmallBody = Annotated[bytes, Depends(_small_body)]
"""The body of a request, unparsed."""


def read_json(kind: type[B], *, nulls: bool = False) -> Callable[..., Awaitable[B]]:
    """The dependency that reads a JSON body of this kind; in the document it stands by `json_body`.

    `Annotated[schemas.NewKey, Depends(read_json(schemas.NewKey))]`. The dependency raises the `RequestError` that names
    the field and the fix. `nulls`: `null` is not the same as absent: it removes something.
    """

    async def read(body: SmallBody) -> B:
        return await offload(len(body), lambda: validated(kind, parse_object(body), nulls=nulls))

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


async def _upload(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[tuple[Upload, Reserved]]:
    files = cast("FileService", request.app.state.files)
    with closing(Held(request.app.state.bodies, key.owner)) as held:
        async with files.reserved(key) as place, received(request, files.max_bytes, place.hold, held) as upload:
            require_still_known(request, key)
            yield upload, place


Uploaded = Annotated[tuple[Upload, Reserved], Depends(_upload)]
"""The file of a form, until the request is over, and the room that is kept for it. Comes behind the key."""

# Stored bytes as an answer.


async def _download(
    request: Request,
    wanted: Annotated[str | None, Header(alias="Range", description="One range, such as `bytes=0-99`.")] = None,
    known: Annotated[str | None, Header(alias="If-Range", description="An `ETag`: `Range` is for these bytes.")] = None,
) -> Download:
    return partial(download, request.app.state.storage, wanted, known)


Downloaded = Annotated[Download, Depends(_download)]
"""Makes the answer of a `Content`, whole or the range that the request asks for."""

# The caller's connection.


async def _gone(request: Request) -> Callable[[], Coroutine[Any, Any, None]]:
    return partial(until_gone, request.receive)


Gone = Annotated[Callable[[], Coroutine[Any, Any, None]], Depends(_gone)]
"""Returns when the client has closed the connection. The body must have been read before."""


# Answers that may be large.


async def _answer(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[Held]:
    with closing(Held(request.app.state.answers, key.owner)) as held:
        yield held


Answer = Annotated[Held, Depends(_answer)]
"""Has the bytes of the answer until the last one is sent."""


async def _large_json(gone: Gone, answer: Answer) -> Callable[[Coroutine[Any, Any, BaseModel]], Awaitable[Response]]:
    async def response(work: Coroutine[Any, Any, BaseModel]) -> Response:
        leaving, working = asyncio.create_task(gone()), asyncio.create_task(work)
        try:
            await asyncio.wait((leaving, working), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise CallerGone
            content = (await asyncio.to_thread(working.result().model_dump_json)).encode()
        finally:
            leaving.cancel()
            working.cancel()
        answer.grow_to(len(content))
        return LargeResponse(content, answer, "application/json", {})

    return response


LargeJSON = Annotated[Callable[[Coroutine[Any, Any, BaseModel]], Awaitable[Response]], Depends(_large_json)]
"""Makes a response of what comes out of a call, which is cancelled when the client leaves first. The response counts as
long as it is sent; raises `Overloaded`."""

"""What routes ask for: services, headers, pages, bodies."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, cast

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel, BeforeValidator

from api.auth import known_key
from api.parts import Services
from api.request.api_keys import still_let_in
from api.request.body import parse_object
from api.request.idempotency import HEADER, MAX_KEY_CHARS
from api.request.offload import offload_in_turn
from api.schemas.common import PagePlace
from api.services.batches import BatchService
from api.services.files import FileService
from api.services.tasks import TaskService
from api.uploads import Download, Upload, download, least_bytes, received
from tasks.records.api_keys import Key
from tasks.wire.validation import validated

B = TypeVar("B", bound=BaseModel)

# Services: one for each resource, made in `api.app`.


async def _tasks(request: Request) -> TaskService:
    return cast("TaskService", request.app.state.tasks)


async def _files(request: Request) -> FileService:
    return cast("FileService", request.app.state.files)


async def _batches(request: Request) -> BatchService:
    return cast("BatchService", request.app.state.batches)


Tasks = Annotated[TaskService, Depends(_tasks)]
Files = Annotated[FileService, Depends(_files)]
Batches = Annotated[BatchService, Depends(_batches)]

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
FileLimit = Annotated[int, _default_if_empty(10_000), Query(ge=1, le=10_000, description="Files per page.")]
OrderQuery = Annotated[Literal["asc", "desc"], _default_if_empty("desc"), Query(description="By time of creation.")]
WaitQuery = Annotated[
    float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the end. The server has a limit too.")
]

# Bodies. Behind the key: what FastAPI is told to read, it reads before any dependency runs. And by our own parser,
# which names the place of what is wrong and refuses half a surrogate pair, which no answer could repeat.


async def _texts_body(request: Request, key: Annotated[Key, Depends(known_key)]) -> bytes:
    parts = cast("Services", request.app.state.services)
    await parts.door.check(key.owner)
    return await parts.bodies.read(request)


async def _small_body(request: Request, _key: Annotated[Key, Depends(known_key)]) -> bytes:
    return await cast("Services", request.app.state.services).bodies.read(request)


TextsBody = Annotated[bytes, Depends(_texts_body)]
"""The body of a call with texts, unparsed, of one that the server can take in. Comes behind the key."""


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


async def _upload(request: Request, key: Annotated[Key, Depends(known_key)]) -> AsyncIterator[Upload]:
    state = request.app.state
    announced = least_bytes(request.headers.get("content-length", ""), state.settings.max_file_bytes)
    # Before the body is read: whoever is over the quota would otherwise send gigabytes to hear of it.
    await cast("FileService", state.files).require_room(key, announced)
    async with received(request, state.settings.max_file_bytes) as upload:
        still_let_in(request.scope)
        yield upload


Uploaded = Annotated[Upload, Depends(_upload)]
"""The file of a form, until the request is over. Comes behind the key."""

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


async def _gone(request: Request) -> Callable[[], Awaitable[None]]:
    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass  # a GET may come with an empty body, which is of no interest

    return gone


Gone = Annotated[Callable[[], Awaitable[None]], Depends(_gone)]
"""Returns when the client has closed the connection. The body must have been read before."""

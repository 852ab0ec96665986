"""Tasks: submit, list, poll, follow, fetch, cancel, forget."""

from collections.abc import Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.answer import task_json, vectors
from api.document.answers import Deleted, EmbeddingList, Task, TaskList
from api.document.openapi import json_body, paging, query
from api.queue.accept import accepted_response
from api.request import ownership
from api.request.memory_budget import LargeResponse
from api.request.offload import offload, offload_in_turn
from api.request.paging import MAX_LIMIT, ListPage, list_json, read_limit, read_page
from api.request.prefer import preference, query_wait_s
from api.request.schemas import TaskBody
from api.server.direct import direct_router
from api.services import Services
from api.waiting.events import EventStream, events
from api.waiting.long_poll import matches, next_state
from tasks import ledger
from tasks.errors import InvalidValue, TaskEnded, TaskNotFinished
from tasks.ledger import operations
from tasks.ledger.ids import missing

router = direct_router(tag="tasks", prefix="/v1/tasks")

_WAIT = query("wait", {"type": "number", "minimum": 0}, "Seconds to wait for the end, or for a change.")
_FORMAT = query("encoding_format", {"enum": ["float", "base64"]}, "base64: of little-endian float32.")
_PAGE: dict[str, Any] = {
    "parameters": [
        paging("status", {"type": "string"}, "States to list, separated by commas; all by default."),
        paging("after", {"type": "string"}, "Id of the task behind which the page begins."),
        paging("limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}, "Tasks per page; 20."),
    ]
}
_JSON = "application/json"
_MAX_CALLS = 20
"""For one page. Where few tasks are in the states asked for, it is shorter than that; nobody waits for the search of a
million."""


@router.post("", status_code=202, responses={202: {"model": Task}}, openapi_extra=json_body(TaskBody))
@router.post("/", include_in_schema=False)
async def create_task(request: Request) -> Response:
    """Stores texts to be encoded and returns at once. With `Idempotency-Key` a repetition gets the same task."""
    services = Services.of(request)
    owner = services.owner(request)
    await services.door.check()
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    task = services.requests.task
    submission = await offload_in_turn(len(body), task, body, owner=owner, idempotency_key=key)
    return await accepted_response(services, submission)


@router.get("", responses={200: {"model": TaskList}}, openapi_extra=_PAGE)
@router.get("/", include_in_schema=False)
async def list_tasks(request: Request) -> Response:
    """The caller's tasks, newest first. Those behind synchronous calls are not listed."""
    services = Services.of(request)
    owner = services.owner(request)
    query = request.query_params
    states, after, limit = _states(query.getlist("status")), _after(query.get("after", "")), read_limit(query)
    page = await read_tasks(services.ledger, owner, states, after=after, limit=limit)
    body = list_json([task_json.task_json(task) for task in page.items], more=page.more, until=page.until)
    return Response(orjson.dumps(body), media_type=_JSON, headers={"cache-control": "no-store"})


@router.get("/{task_id}", responses={200: {"model": Task}, 304: {}}, openapi_extra=_WAIT)
async def read_task(request: Request, task_id: str) -> Response:
    """The state of a task. `wait` holds the answer until its end; with `If-None-Match`, until the first change."""
    services = Services.of(request)
    wished_s = query_wait_s(request.query_params.get("wait"))
    if wished_s is None:
        wished_s = preference(request.headers).wait_s or 0.0
    known = request.headers.get("if-none-match")
    task = await next_state(services, request, task_id, min(wished_s, services.settings.max_wait_s), known)
    if matches(known, task):
        return Response(status_code=304, headers={"etag": task_json.etag(task), "cache-control": "no-store"})
    return _state(services, task)


@router.get(
    "/{task_id}/events",
    status_code=200,
    response_class=Response,
    responses={
        200: {"description": "Server-sent events.", "content": {EventStream.media_type: {}}},
        204: {"description": "Nothing more will happen."},
    },
)
async def follow_task(request: Request, task_id: str) -> Response:
    """The state now, then after each change, up to the end. With `Last-Event-ID` a state that is known is left out."""
    services = Services.of(request)
    known = request.headers.get("last-event-id")
    task = await ownership.own_task(services, request, task_id)
    if task.state.terminal and matches(known, task):
        return Response(status_code=204)  # to an EventSource this says: do not connect again
    return EventStream(events(services, request, task_id, known))


@router.get(
    "/{task_id}/result",
    responses={200: {"model": EmbeddingList, "content": {vectors.NPY: {}}}},
    openapi_extra=_FORMAT,
)
async def read_result(request: Request, task_id: str) -> Response:
    """The vectors in input order, as JSON or (`Accept: application/x-npy`) as a NumPy file, once the task has ended."""
    services = Services.of(request)
    base64 = _wants_base64(request.query_params.get("encoding_format"))
    task = await ownership.own_task(services, request, task_id)
    if not task.state.terminal:
        raise TaskNotFinished(
            f"{task.completed + task.failed} of {task.total} inputs are done; ask again later.",
            retry_after_s=services.registry.retry_after_s(task),
        )
    result = await ownership.read_result(services, task_id, task.total)
    if result is None:
        raise missing(task_id, services.settings.result_ttl_s)
    size = vectors.size_bytes(result)
    as_file = vectors.NPY in request.headers.get("accept", "")
    services.take_answer(request, size, as_text=not as_file)
    headers = {"etag": task_json.etag(result.task), "cache-control": "private", "vary": "Accept"}
    if as_file:
        file = await offload(size, vectors.npy_file, result, _dimension(services, result.task))
        return LargeResponse(file, media_type=vectors.NPY, headers=headers)
    content = await offload(size, vectors.embedding_list, result, base64=base64)
    return LargeResponse(content, media_type=_JSON, headers=headers)


@router.post("/{task_id}/cancel", responses={200: {"model": Task}})
async def cancel_task(request: Request, task_id: str) -> Response:
    """Ends a task; what was finished stays readable. Cancelling twice is fine."""
    services = Services.of(request)
    task = await ownership.own_task(services, request, task_id)
    outcome = await services.ledger.run(operations.cancel(task.queue, task_id))
    task = await ownership.own_task(services, request, task_id)
    if outcome == "ended":
        raise TaskEnded(f"The task has ended already ({task.state}); there is nothing to cancel.")
    return _state(services, task)


@router.delete("/{task_id}", responses={200: {"model": Deleted}})
async def delete_task(request: Request, task_id: str) -> Response:
    """Cancels a task if it is open and forgets it with everything that belongs to it."""
    services = Services.of(request)
    task = await ownership.own_task(services, request, task_id)
    await services.ledger.run(operations.forget(task.queue, task_id))
    return Response(orjson.dumps({"id": task_id, "object": "embedding.task", "deleted": True}), media_type=_JSON)


def _state(services: Services, task: ledger.Task) -> Response:
    return task_json.task_response(task, retry_after_s=services.registry.retry_after_s(task))


async def read_tasks(
    tasks_ledger: ledger.AsyncLedger,
    owner: str,
    states: Sequence[ledger.State],
    *,
    after: str | None,
    limit: int,
    max_calls: int = _MAX_CALLS,
    look: int = operations.LOOK,
) -> ListPage[ledger.Task]:
    """Tasks in one of `states`, or all, the newest first; maybe fewer than there are, and then it says so.

    `look`: tasks that one call looks at.

    Raises:
        RedisUnavailable: no answer.
    """

    async def read(behind: str | None, most: int) -> ListPage[ledger.Task]:
        list_some = operations.list_tasks(owner, limit=most, after=behind or "", states=states, look=look)
        part = await tasks_ledger.run(list_some)
        return ListPage(part.tasks, part.until, part.more)

    return await read_page(read, after=after, limit=limit, max_calls=max_calls)


def _states(named: Sequence[str]) -> Sequence[ledger.State]:
    names = [name.strip() for part in named for name in part.split(",") if name.strip()]
    if set(names) - set(ledger.State):
        raise InvalidValue(f"status must be some of {', '.join(ledger.State)}.", param="status")
    return [state for state in ledger.State if state in names]


def _after(task_id: str) -> str | None:
    if task_id and not ownership.TASKS.is_id(task_id):
        raise InvalidValue("after must be the id of a task, such as last_id of the page before.", param="after")
    return task_id or None


def _dimension(services: Services, task: ledger.Task) -> int:
    entry = services.registry.entry(task.queue)
    return task.options.dimensions or (entry.dimension if entry else 0)


def _wants_base64(encoding_format: str | None) -> bool:
    if encoding_format not in {None, "float", "base64"}:
        raise InvalidValue("encoding_format must be 'float' or 'base64'.", param="encoding_format")
    return encoding_format == "base64"

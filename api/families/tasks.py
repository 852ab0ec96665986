"""Tasks: submit, list, poll, fetch, cancel, forget."""

import time
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer import task_json, vectors
from api.answer.description import Answer, json_body, query
from api.answer.json_response import JSON, ListOf
from api.answer.why_waiting import why_waiting
from api.auth import require
from api.error_responses import CallerGone
from api.families.route import (
    CALLER,
    IDEMPOTENCY_KEY,
    TASK_MAKING,
    TASK_READING,
    TEXTS,
    Errors,
    Family,
)
from api.parts import Services
from api.queue.accept import accepted_response
from api.request import ownership
from api.request.memory_budget import LargeResponse
from api.request.offload import offload, offload_in_turn
from api.request.paging import ListPage, read_page
from api.request.patience import query_wait_s
from api.request.schemas import TaskBody
from api.waiting.hub import watched
from tasks import errors, ledger
from tasks.errors import InvalidValue, TaskNotFinished
from tasks.ledger import operations
from tasks.ledger.ids import missing
from tasks.records.api_keys import Scope
from worker_config.subject import span

# The answers as pydantic models. They document; the routes below render, which is several times faster.


class TaskList(ListOf[task_json.Task]):
    """A page of tasks, newest first."""

    last_id: str | None = Field(description="Value of `after` for the next page.")


class Deleted(BaseModel):
    """Confirms that a task is forgotten."""

    id: str
    object: Literal["embedding.task"]
    deleted: Literal[True]


router = Family("tasks")

_TASK: Errors = (*CALLER, errors.TaskNotFound, errors.TaskGone)
_MAX_CALLS = 20
"""For one page. Where few tasks are in the states asked for, it is shorter than that; nobody waits for the search of a
million."""


@router.describe(
    "POST",
    "/v1/tasks",
    Answer(202, task_json.Task, headers=(task_json.LOCATION, task_json.RETRY_AFTER)),
    scopes=TASK_MAKING,
    errors=(*TEXTS, errors.IdempotencyConflict, errors.TaskGone, errors.NotReplicated),
    reads=(IDEMPOTENCY_KEY,),
    body=json_body(TaskBody),
    slash=True,
)
async def create_task(request: Request) -> Response:
    """Stores texts and answers at once. A repetition with the same `Idempotency-Key` returns the same task."""
    services = Services.from_request(request)
    owner = services.owner(request)
    await services.door.check(owner)
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    task = services.requests.task
    submission = await offload_in_turn(len(body), task, body, owner=owner, idempotency_key=key)
    require(request, services.caller(request), {Scope(submission.lane)})
    return await accepted_response(services, submission)


@router.describe(
    "GET",
    "/v1/tasks/{task_id}",
    Answer(200, task_json.Task, headers=(task_json.RETRY_AFTER,)),
    scopes=TASK_READING,
    errors=(*_TASK, errors.RequestError),
    reads=(query("wait", {"type": "number", "minimum": 0}, "Seconds to wait for the end."),),
)
async def read_task(request: Request, task_id: str) -> Response:
    """Returns a task, at once or when it has ended, at the latest after `wait` seconds."""
    services = Services.from_request(request)
    wished_s = query_wait_s(request.query_params.get("wait"))
    task = await _state_at_end(services, request, task_id, min(wished_s, services.settings.max_wait_s))
    return await _state(services, task)


async def _state_at_end(services: Services, request: Request, task_id: str, wait_s: float) -> ledger.Task:
    """The task at its end, or as it is after `wait_s`."""
    end = time.monotonic() + wait_s
    with services.hub.waiting(task_id) as waiter:
        task = await ownership.own_task(services, request, task_id)
        if task.state.terminal or wait_s <= 0:
            return task
        with watched(request, waiter):
            while True:
                news = await waiter.changed(end - time.monotonic())
                if waiter.gone:
                    raise CallerGone
                task = await ownership.own_task(services, request, task_id)
                if task.state.terminal or waiter.dismissed or not news:
                    return task


@router.describe(
    "GET",
    "/v1/tasks/{task_id}/result",
    Answer(200, vectors.EmbeddingList, media_types=(vectors.NPY,)),
    scopes=TASK_READING,
    errors=(*_TASK, errors.RequestError, errors.TaskNotFinished, errors.Overloaded),
    reads=(query("encoding_format", {"enum": ["float", "base64"]}, "base64: of little-endian float32."),),
)
async def read_result(request: Request, task_id: str) -> Response:
    """Returns the vectors of an ended task in input order, as JSON or (`Accept: application/x-npy`) a NumPy file."""
    services = Services.from_request(request)
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
    headers = {"cache-control": "private", "vary": "Accept"}
    with span("answer"):
        if as_file:
            content = await offload(size, vectors.npy_file, result, _dimension(services, result.task))
        else:
            content = await offload(size, vectors.embedding_list, result, base64=base64)
    return LargeResponse(content, media_type=vectors.NPY if as_file else JSON, headers=headers)


async def _state(services: Services, task: ledger.Task) -> Response:
    [waiting] = await why_waiting(services.ledger, services.registry, [task])
    return task_json.task_response(task, retry_after_s=services.registry.retry_after_s(task), waiting=waiting)


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

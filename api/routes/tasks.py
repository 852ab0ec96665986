"""Tasks: submit, list, poll, fetch, cancel, forget. `create_task` takes the request: see `api.read_texts_call`."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Request, Response

from api.auth import Reader, TaskMaker, TaskReader
from api.dependencies import Answer, Gone, Jobs, LargeJSON, PageQuery, Tasks, WaitQuery, tasks_of
from api.load_limits import LargeResponse
from api.read_texts_call import IDEMPOTENCY, documented, idempotency_key, texts_call
from api.render_vectors import NPY
from api.schemas.answer_parts import Deleted, Page
from api.schemas.embeddings import EmbeddingList, TaskBody
from api.schemas.tasks import Task
from tasks.records.api_keys import Scope

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

StatusQuery = Annotated[list[str] | None, Query(description="States to list, separated by commas; all by default.")]
_SECONDS = {"schema": {"type": "integer"}}
_LOCATED = {"Location": {"schema": {"type": "string"}}, "Retry-After": _SECONDS}


@router.post(
    "",
    status_code=202,
    responses={202: {"model": Task, "headers": _LOCATED}},
    openapi_extra=documented(TaskBody, "online", "bulk", headers=IDEMPOTENCY),
)
async def create_task(request: Request) -> Response:
    """Stores texts and answers at once. A repetition with the same `Idempotency-Key` returns the same task."""
    async with texts_call(request, Scope.ONLINE, Scope.BULK) as call:
        task, retry_after_s = await tasks_of(request).create(call, idempotency_key(request))
    headers = {"location": task.links.self}
    if task.finished_at is None:
        headers["retry-after"] = str(retry_after_s)
    return Response(task.model_dump_json(), 202, headers, "application/json")


@router.get("", response_model=Page[Task])
async def list_tasks(
    key: Reader, jobs: Jobs, page: PageQuery, answer: LargeJSON, status: StatusQuery = None
) -> Response:
    """Lists the caller's tasks, newest first. Tasks behind synchronous calls are not listed."""
    return await answer(jobs.list(key, page, ["task"], status or ()))


@router.get("/{task_id}", responses={200: {"headers": {"Retry-After": _SECONDS}}})
async def read_task(
    key: TaskReader, tasks: Tasks, task_id: str, gone: Gone, response: Response, wait: WaitQuery = 0.0
) -> Task:
    """Returns a task, now or at its end, at the latest after `wait` seconds."""
    task, retry_after_s = await tasks.read(key, task_id, wait, gone)
    if retry_after_s is not None:
        response.headers["retry-after"] = str(retry_after_s)
    return task


@router.get(
    "/{task_id}/result",
    response_class=Response,
    responses={200: {"model": EmbeddingList, "content": {NPY: {}}}},
)
async def read_result(
    key: TaskReader,
    tasks: Tasks,
    task_id: str,
    answer: Answer,
    encoding_format: Annotated[
        Literal["float", "base64"], Query(description="base64: of little-endian float32.")
    ] = "float",
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """Returns the vectors of an ended task in input order, as JSON or (`Accept: application/x-npy`) a NumPy file."""
    npy = NPY in accept
    content = await tasks.result(key, task_id, answer, base64=encoding_format == "base64", npy=npy)
    headers = {"cache-control": "private", "vary": "Accept"}
    return LargeResponse(content, answer, NPY if npy else "application/json", headers)


@router.post("/{task_id}/cancel")
async def cancel_task(key: TaskMaker, tasks: Tasks, task_id: str) -> Task:
    """Ends a task; finished vectors stay readable. Cancelling twice returns 200."""
    return await tasks.cancel(key, task_id)


@router.delete("/{task_id}")
async def delete_task(key: TaskMaker, tasks: Tasks, task_id: str) -> Deleted:
    """Deletes a task and everything that belongs to it. An open task is cancelled first."""
    await tasks.delete(key, task_id)
    return Deleted(id=task_id, object="embedding.task")

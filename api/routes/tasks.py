"""Tasks: submit, list, poll, fetch, cancel, forget."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.auth import Reader, TaskMaker
from api.dependencies import PageQuery, Tasks
from api.schemas.common import Deleted, Page
from api.schemas.tasks import Task

router = APIRouter(prefix="/v1/tasks", tags=["tasks"])

StatusQuery = Annotated[list[str] | None, Query(description="States to list, separated by commas; all by default.")]


@router.get("")
async def list_tasks(key: Reader, tasks: Tasks, page: PageQuery, status: StatusQuery = None) -> Page[Task]:
    """Lists the caller's tasks, newest first. Tasks behind synchronous calls are not listed."""
    return await tasks.list(key, status or (), page)


@router.post("/{task_id}/cancel")
async def cancel_task(key: TaskMaker, tasks: Tasks, task_id: str) -> Task:
    """Ends a task; finished vectors stay readable. Cancelling twice returns 200."""
    return await tasks.cancel(key, task_id)


@router.delete("/{task_id}")
async def delete_task(key: TaskMaker, tasks: Tasks, task_id: str) -> Deleted:
    """Deletes a task and everything that belongs to it. An open task is cancelled first."""
    await tasks.delete(key, task_id)
    return Deleted(id=task_id, object="embedding.task")

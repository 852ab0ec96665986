"""Long polling: a status that is answered when there is news."""

import time

from starlette.requests import Request

from api.answer.task_json import etag
from api.error_responses import CallerGone
from api.parts import Services
from api.request.ownership import own_task
from api.waiting.hub import Waiter, watched
from tasks.ledger import Task

UNSEEN = 0
"""A version no task has: news that comes while the task is being read is not lost."""


def matches(seen_tag: str | None, task: Task) -> bool:
    """Whether an `If-None-Match` header names the present version of the task."""
    if seen_tag is None:
        return False
    return any(tag.strip().removeprefix("W/") in {etag(task), "*"} for tag in seen_tag.split(","))


async def next_state(
    services: Services, request: Request, task_id: str, wait_s: float, seen_tag: str | None = None
) -> Task:
    """The task at its end, or after `wait_s`; with `seen_tag`, an `If-None-Match`, at the first change since.

    Raises:
        CallerGone: the client left first.
        RequestError, RedisUnavailable: as `own_task` does.
    """
    with services.hub.waiting(task_id, version=None if seen_tag is None else UNSEEN) as waiter:
        task = await own_task(services, request, task_id)
        if task.state.terminal or wait_s <= 0 or (seen_tag is not None and not matches(seen_tag, task)):
            return task
        with watched(request, waiter):
            return await _changed(services, request, task, waiter, time.monotonic() + wait_s)


async def _changed(services: Services, request: Request, task: Task, waiter: Waiter, end: float) -> Task:
    seen = task.version
    any_change = waiter.version is not None
    while not task.state.terminal and not waiter.dismissed:
        if any_change:
            waiter.version = task.version
        if not await waiter.changed(end - time.monotonic()):
            return task
        if waiter.gone:
            raise CallerGone
        task = await own_task(services, request, task.id, shared=True)
        if any_change and task.version != seen:
            return task
    return task

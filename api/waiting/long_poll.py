"""Long polling: the state of a task, held back until its end."""

import time

from starlette.requests import Request

from api.answer.errors import CallerGone
from api.request.ownership import own_task
from api.services import Services
from api.waiting.hub import watched
from tasks.ledger import Task


async def state_at_end(services: Services, request: Request, task_id: str, wait_s: float) -> Task:
    """The task at its end, or as it is after `wait_s`.

    Raises:
        CallerGone: the client left first.
        RequestError, RedisUnavailable: as `own_task` does.
    """
    end = time.monotonic() + wait_s
    with services.hub.waiting(task_id) as waiter:
        task = await own_task(services, request, task_id)
        if task.state.terminal or wait_s <= 0:
            return task
        with watched(request, waiter):
            while True:
                news = await waiter.changed(end - time.monotonic())
                if waiter.gone:
                    raise CallerGone
                task = await own_task(services, request, task_id)
                if task.state.terminal or waiter.dismissed or not news:
                    return task

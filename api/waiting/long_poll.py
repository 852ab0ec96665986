"""`?wait=`: the state of a task, held back until its end."""

from collections.abc import Awaitable, Callable

from api.error_responses import CallerGone
from api.waiting.subscription import Subscription
from tasks.ledger import Task


async def read_at_end(
    subscription: Subscription,
    task_id: str,
    read: Callable[[], Awaitable[Task]],
    wait_s: float,
    gone: Callable[[], Awaitable[None]],
) -> Task:
    """The task at its end, or as it is after `wait_s` or when the server stops.

    Args:
        subscription: tells of the end.
        task_id: whose.
        read: reads the task; what it raises is raised.
        wait_s: 0: it is read at once and once.
        gone: returns when the client has left.

    Raises:
        CallerGone: the client left first.
    """
    with subscription.waiting(task_id) as wait:
        task = await read()
        if task.state.terminal or wait_s <= 0:
            return task
        wait.stored = True
        if await wait.until_over(wait_s, gone):
            raise CallerGone
        return await read()

"""`?wait=`: the state of a task, held back until its end.

A caller that waits in vain gets the state as it is, and asks again.
"""

from collections.abc import Awaitable, Callable

from api.error_responses import CallerGone
from api.waiting.subscription import Subscription
from tasks.ledger import Task


async def read_at_end(
    subscription: Subscription,
    task_id: str,
    read: Callable[[], Awaitable[Task]],
    *,
    wait_s: float,
    max_wait_s: float,
    gone: Callable[[], Awaitable[None]],
) -> Task:
    """The task at its end, or as it is after `wait_s`, after `max_wait_s`, or when the server stops.

    Args:
        subscription: tells of the end.
        task_id: whose.
        read: reads the task; what it raises is raised.
        wait_s: as the caller wishes; 0: it is read at once and once.
        max_wait_s: as the server allows.
        gone: returns when the client has left.

    Raises:
        CallerGone: the client left first.
    """
    with subscription.waiting(task_id) as wait:  # registered before the task is read: no end can slip through
        task = await read()
        if task.state.terminal or wait_s <= 0:
            return task
        wait.stored = True
        if await wait.until_over(min(wait_s, max_wait_s), gone):
            raise CallerGone
        return await read()

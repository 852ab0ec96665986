"""Finding a task for its owner. Whoever else asks learns no more than that there is no such task."""

from starlette.requests import Request

from api.services import Services
from tasks.ledger import Result, Task, operations
from tasks.ledger.executor import CALL_TIMEOUT_S
from tasks.ledger.ids import created_ms, missing

_SMALL_ITEMS = 64
_RESULT_TIMEOUT_S = 30.0
"""A result may be hundreds of megabytes. Whoever reads one has just heard from Redis, so a long limit blocks nobody."""


async def own_task(services: Services, request: Request, task_id: str, *, shared: bool = False) -> Task:
    """The task, if it belongs to the caller. `shared`: the reading may be one for others too who were woken with it.

    Raises:
        TaskNotFound, TaskGone: the ledger does not hold it, or holds it for somebody else.
        Unauthenticated: nobody known calls.
    """
    owner = services.owner(request)
    task = None
    if created_ms(task_id) is not None:  # otherwise it cannot be an id of ours, and Redis need not be asked
        read = services.hub.readings.task(task_id) if shared else services.ledger.run(operations.read_task(task_id))
        task = await read
    if task is None or task.owner != owner:  # one answer for both, or it would say which ids others have
        raise missing(task_id, services.settings.result_ttl_s)
    return task


async def read_result(services: Services, task_id: str, items: int) -> Result | None:
    """Everything committed of a task of so many items; None when the ledger no longer holds it.

    Raises:
        RedisUnavailable: no answer.
    """
    timeout_s = CALL_TIMEOUT_S if items <= _SMALL_ITEMS else _RESULT_TIMEOUT_S
    return await services.ledger.run(operations.read_result(task_id), timeout_s=timeout_s)

"""Finding by an id what a caller owns. What others own looks to a caller as if it did not exist."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.requests import Request

from api.parts import Services
from tasks.errors import EmbedqError, TaskNotFound
from tasks.ledger import Result, Task, operations
from tasks.ledger.executor import CALL_TIMEOUT_S
from tasks.ledger.ids import created_ms, missing
from tasks.ledger.operations import Operation
from worker_config.settings import Settings
from worker_config.subject import link_task, span, subject_is_task


class Owned(Protocol):
    """Something with an owner."""

    @property
    def owner(self) -> str:
        """Whose it is."""


T = TypeVar("T", bound=Owned)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of things that callers own.

    Attributes:
        name: in messages.
        is_id: whether a text has the form of their ids: Redis need not be asked for another.
        read: by id.
        unknown: the class of the error of one that there is not.
        made_by: the call whose answer has ids.
        missing: the error for an id that there is not, where it says more than the usual one.
    """

    name: str
    is_id: Callable[[str], bool]
    read: Callable[[str], Operation[T | None]]
    unknown: type[EmbedqError]
    made_by: str
    missing: Callable[[str, Settings], EmbedqError] | None = None

    def missing_error(self, thing_id: str, settings: Settings) -> EmbedqError:
        """For an id that there is not, or that is somebody else's."""
        if self.missing is not None:
            return self.missing(thing_id, settings)
        message = f"No {self.name} found with this id. Use the id from the answer to {self.made_by}."
        return self.unknown(message, param="id")


async def read_own(
    services: Services,
    request: Request,
    resource: Resource[T],
    thing_id: str,
) -> T:
    """The thing with this id, if it belongs to the caller.

    Raises:
        EmbedqError: the resource's error: there is none, or it is somebody else's.
        Unauthenticated: the request has no known key.
    """
    owner = services.owner(request)
    thing = None
    if resource.is_id(thing_id):
        subject_is_task(thing_id)
        thing = await services.ledger.run(resource.read(thing_id))
    # One answer for all of these, or it would say which ids others have.
    if thing is None or thing.owner != owner:
        raise resource.missing_error(thing_id, services.settings)
    return thing


TASKS = Resource(
    "task",
    lambda task_id: created_ms(task_id) is not None,
    operations.read_task,
    TaskNotFound,
    "POST /v1/tasks",
    lambda task_id, settings: missing(task_id, settings.result_ttl_s),
)
_SMALL_ITEMS = 64
_RESULT_TIMEOUT_S = 30.0
"""A result may be hundreds of megabytes. Its reader has just heard from Redis, so a long limit blocks nobody."""


async def own_task(services: Services, request: Request, task_id: str) -> Task:
    """The task, if it belongs to the caller.

    Raises:
        TaskNotFound, TaskGone: the ledger does not hold it, or holds it for somebody else.
        Unauthenticated: the request has no known key.
    """
    task = await read_own(services, request, TASKS, task_id)
    link_task(task.trace)
    return task


async def read_result(services: Services, task_id: str, items: int) -> Result | None:
    """The result of a task with so many items; None when the ledger no longer holds it.

    Raises:
        RedisUnavailable: no answer.
    """
    timeout_s = CALL_TIMEOUT_S if items <= _SMALL_ITEMS else _RESULT_TIMEOUT_S
    with span("read"):
        return await services.ledger.run(operations.read_result(task_id), timeout_s=timeout_s)

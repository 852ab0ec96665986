"""What a caller owns and finds by an id: one of it, or a page of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import orjson
from starlette.requests import Request

from api.request.paging import page_limit
from api.services import Services
from tasks.errors import EmbedqError
from tasks.ledger import Result, Task, operations
from tasks.ledger.executor import CALL_TIMEOUT_S
from tasks.ledger.ids import created_ms, missing
from tasks.ledger.operations import Operation


class Owned(Protocol):
    """Something with an owner."""

    @property
    def owner(self) -> str:
        """Whose it is."""


T = TypeVar("T", bound=Owned)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of things.

    Attributes:
        name: in messages.
        is_id: whether a text has the form of their ids: Redis need not be asked for another.
        read: by id.
        list: ids of an owner's, the newest first, and whether there may be more, also where they are fewer than
            `limit`: `(owner, after=…, limit=…)`.
        unknown: the error of one that there is not.
        made_by: the call whose answer has ids.
    """

    name: str
    is_id: Callable[[str], bool]
    read: Callable[[str], Operation[T | None]]
    list: Callable[..., Operation[tuple[list[str], bool]]]
    unknown: type[EmbedqError]
    made_by: str


async def own(services: Services, request: Request, kind: Kind[T], thing_id: str) -> T:
    """The one with this id, if it belongs to the caller.

    Raises:
        EmbedqError: the kind's `unknown`: there is none, or it is somebody else's.
        Unauthenticated: nobody known calls.
    """
    owner = services.owner(request)
    found = await services.ledger.run(kind.read(thing_id)) if kind.is_id(thing_id) else None
    if found is None or found.owner != owner:
        message = f"No {kind.name} found with this id. Use the id from the answer to {kind.made_by}."
        raise kind.unknown(message, param="id")
    return found


async def own_ids(services: Services, request: Request, kind: Kind[T]) -> tuple[list[str], bool]:
    """Ids of the page that the query asks for, and whether there are more. Raises like `own` and `page_limit`."""
    owner = services.owner(request)
    after = request.query_params.get("after") or None
    if after is not None and not kind.is_id(after):
        raise kind.unknown(f"No {kind.name} found with the id in `after`.", param="after")
    limit = page_limit(request.query_params.get("limit", ""))
    ids: list[str] = []
    more = True
    while more and len(ids) < limit:
        some, more = await services.ledger.run(
            kind.list(owner, after=ids[-1] if ids else after, limit=limit - len(ids))
        )
        ids += some
    return ids, more


def list_body(rendered: list[dict[str, Any]], *, more: bool) -> bytes:
    """The answer, in the form of OpenAI's lists."""
    page = {
        "object": "list",
        "data": rendered,
        "first_id": rendered[0]["id"] if rendered else None,
        "last_id": rendered[-1]["id"] if rendered else None,
        "has_more": more,
    }
    return orjson.dumps(page)


# Finding a task for its owner. Whoever else asks learns no more than that there is no such task.

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

"""A page of the caller's tasks: what the query asks for, how it is read, and how it looks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from api.answer.task_json import task_json
from api.services import Services
from tasks.errors import InvalidValue
from tasks.ledger import State, Task
from tasks.ledger.ids import created_ms
from tasks.ledger.operations import list_tasks

MAX_LIMIT = 100
DEFAULT_LIMIT = 20
MAX_PARTS = 20
"""Calls for one page. Where few tasks are in the states asked for, it is shorter than that; nobody waits for the search
of a million."""


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What is asked for. No states: all. `after`: the id of a task, or ''."""

    states: Sequence[State]
    after: str
    limit: int


@dataclass(frozen=True, slots=True)
class Page:
    """Tasks, newest first. `until`: the place behind which the next page begins; None when nothing is left."""

    tasks: Sequence[Task]
    until: str | None
    more: bool


def page_query(parameters: QueryParams) -> PageQuery:
    """The query of a list; an empty value counts as absent.

    Raises:
        InvalidValue: a state that does not exist, an `after` that is no id of a task, or a `limit` out of range.
    """
    return PageQuery(
        _states(parameters.getlist("status")),
        _after(parameters.get("after", "")),
        page_limit(parameters.get("limit", "")),
    )


async def read_page(services: Services, owner: str, query: PageQuery) -> Page:
    """The page. With states it may hold fewer tasks than there are, even none, and say that there are more.

    Raises:
        RedisUnavailable: no answer.
    """
    tasks: list[Task] = []
    until = query.after
    for _ in range(MAX_PARTS):
        left = query.limit - len(tasks)
        part = await services.ledger.run(list_tasks(owner, limit=left, after=until, states=query.states))
        tasks += part.tasks
        until = part.until or until
        if not part.more or len(tasks) == query.limit:
            break
    if not part.more or len(tasks) == query.limit:
        until = tasks[-1].id if tasks else ""
    return Page(tasks, until or None, part.more)


def page_json(page: Page) -> dict[str, Any]:
    """The answer, in the form of OpenAI's lists."""
    return {
        "object": "list",
        "data": [task_json(task) for task in page.tasks],
        "first_id": page.tasks[0].id if page.tasks else None,
        "last_id": page.until,
        "has_more": page.more,
    }


def _states(named: Sequence[str]) -> Sequence[State]:
    names = [name.strip() for part in named for name in part.split(",") if name.strip()]
    if set(names) - set(State):
        raise InvalidValue(f"status must be some of {', '.join(State)}.", param="status")
    return [state for state in State if state in names]


def _after(task_id: str) -> str:
    if task_id and created_ms(task_id) is None:
        raise InvalidValue("after must be the id of a task, such as last_id of the page before.", param="after")
    return task_id


def page_limit(text: str) -> int:
    """How many objects a page may have; without a value, the default.

    Raises:
        InvalidValue: it is not a whole number in the allowed range.
    """
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdecimal() and len(text) < len("1000") and 1 <= int(text) <= MAX_LIMIT):
        raise InvalidValue(f"limit must be a whole number from 1 to {MAX_LIMIT}.", param="limit")
    return int(text)

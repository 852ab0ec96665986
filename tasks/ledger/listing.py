"""Listing the tasks of one owner, newest first, page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.ledger import results
from tasks.ledger.operations import Operation
from tasks.ledger.types import State, Task

LOOK = 250
"""Entries that one call looks at, at most: many may be of tasks in other states, or gone; Redis is not held long."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A part of a list.

    Attributes:
        tasks: newest first; at most as many as were asked for, maybe none.
        until: the place up to which it was looked; '' when there was nothing to look at.
        more: there may be more behind that place.
    """

    tasks: Sequence[Task]
    until: str
    more: bool


def list_tasks(owner: str, *, limit: int, after: str = "", states: Sequence[State] = ()) -> Operation[Listed]:
    """Up to `limit` of an owner's listed tasks in one of `states` (none: all), older than the one with id `after`.

    It reads one task more than `limit` and looks at `LOOK` entries at most, so a part may hold fewer although there are
    more. Running it again is harmless: all that it changes is that ids of tasks which are gone leave the list.
    """
    look = max(LOOK, limit + 1)

    def read(reply: list[Any]) -> Listed:
        until, more, *rows = reply
        found = (results.task(row[0].decode(), row[1:]) for row in rows)
        return Listed(tuple(task for task in found if task is not None), until.decode(), bool(more))

    return Operation("list", "", (owner, after, limit, look, " ".join(states)), read)

"""Task ids: `task_` and a UUIDv7 (RFC 9562), whose first 48 bits are the time, so that an expired id can be told."""

import re
import time
import uuid

import uuid_utils

from tasks.errors import TaskGone, TaskNotFound

_FORM = re.compile(r"task_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_RANDOM_BITS = 80


def new_task_id() -> str:
    """A fresh id."""
    return f"task_{uuid_utils.uuid7()}"


def created_ms(task_id: str) -> int | None:
    """Unix milliseconds at which the id was made; None when it is not an id of ours."""
    if not _FORM.fullmatch(task_id):
        return None
    return uuid.UUID(task_id.removeprefix("task_")).int >> _RANDOM_BITS


def missing(task_id: str, retention_s: float) -> TaskGone | TaskNotFound:
    """The error for an id that the ledger does not hold: gone when it is older than the retention, else not found."""
    made = created_ms(task_id)
    if made is not None and made < (time.time() - retention_s) * 1000:
        return TaskGone("This task is past its retention; its result has been deleted. Submit the texts again.")
    return TaskNotFound("No task has this id. Use the id from the answer to POST /v1/tasks.", param="id")

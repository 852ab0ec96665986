"""A task as clients see it: its JSON, its headers, and the JSON of a task that was stored just now."""

from typing import Any, Literal

import orjson
from pydantic import BaseModel, Field
from starlette.responses import Response

from api.answer.description import SECONDS, ResponseHeader
from api.answer.json_response import NO_STORE, Counts, Reason, Usage, json_response, unix_seconds
from api.answer.why_waiting import WAITING, Waiting
from tasks import ledger
from tasks.item import ItemError
from tasks.ledger import Lane, State, Submission
from tasks.ledger.ids import created_ms

_NO_STORE = (b"cache-control", NO_STORE["cache-control"].encode())
RETRY_AFTER = ResponseHeader("Retry-After", "Seconds, while open.", SECONDS)
LOCATION = ResponseHeader("Location", "Path of what was begun.", required=True)


class Links(BaseModel):
    """Paths of what can be done with a task."""

    self: str
    result: str
    cancel: str


class Task(BaseModel):
    """A task. Times are Unix seconds."""

    id: str = Field(examples=["task_019a8f6e-3c5b-7d1e-9f00-2b7c4d5e6f70"])
    object: Literal["embedding.task"]
    status: Literal["queued", "in_progress", "completed", "failed", "cancelled", "expired"]
    lane: Literal["online", "bulk"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None = Field(description="When the result is deleted; null while the task is open.")
    deadline: int | None = Field(description="When the task expires if it has not ended.")
    model: str
    counts: Counts
    usage: Usage
    error: Reason | None
    metadata: dict[str, str]
    waiting: Waiting | None = WAITING
    links: Links


def task_response(
    task: ledger.Task,
    *,
    retry_after_s: int,
    waiting: dict[str, Any] | None = None,
    status: int = 200,
    location: bool = False,
) -> Response:
    """The task, with `Retry-After` while it is open."""
    body = task_json(task, waiting)
    headers = [_NO_STORE]
    if not task.state.terminal:
        headers.append((b"retry-after", b"%d" % retry_after_s))
    if location:
        headers.append((b"location", body["links"]["self"].encode()))
    response = json_response(body, status=status)
    response.raw_headers[:0] = headers
    return response


def task_json(task: ledger.Task, waiting: dict[str, Any] | None = None) -> dict[str, Any]:
    """The task resource of the native interface. Times are Unix seconds. `waiting`: as in `why_waiting`."""
    error = task_error(task)
    return {
        "id": task.id,
        "object": "embedding.task",
        "status": task.state.value,
        "lane": task.lane.value,
        "created_at": unix_seconds(task.created_ms),
        "started_at": unix_seconds(task.started_ms),
        "finished_at": unix_seconds(task.finished_ms),
        "expires_at": unix_seconds(task.expires_ms),
        "deadline": unix_seconds(task.deadline_ms),
        "model": task.queue,
        "counts": {"total": task.total, "completed": task.completed, "failed": task.failed},
        "usage": {"prompt_tokens": task.prompt_tokens, "total_tokens": task.prompt_tokens},
        "error": {"code": error.code, "message": error.message} if error else None,
        "metadata": dict(task.metadata) if task.metadata else {},
        "waiting": waiting,
        "links": _links(task.id),
    }


def task_from_submission(submission: Submission) -> ledger.Task:
    """The task that the ledger has just stored, without asking it again. The time is this machine's."""
    created = created_ms(submission.task_id) or 0
    deadline_in_ms = submission.deadline_in_ms
    return ledger.Task(
        id=submission.task_id,
        queue=submission.queue,
        lane=Lane(submission.lane),
        owner=submission.owner,
        state=State.QUEUED,
        total=sum(unit.items for unit in submission.units),
        completed=0,
        failed=0,
        prompt_tokens=0,
        created_ms=created,
        started_ms=None,
        finished_ms=None,
        deadline_ms=None if deadline_in_ms is None else created + deadline_in_ms,
        expires_ms=None,
        options=submission.options,
        metadata=orjson.loads(submission.metadata) if submission.metadata else None,
        cost=sum(unit.cost for unit in submission.units),
    )


def _links(task_id: str) -> dict[str, str]:
    here = f"/v1/tasks/{task_id}"
    return {"self": here, "result": f"{here}/result", "cancel": f"{here}/cancel"}


def task_error(task: ledger.Task) -> ItemError | None:
    """Why it has failed as a whole; None where it has not."""
    if task.state is State.FAILED:
        message = "None of the inputs could be encoded; the result says why for each of them."
        return ItemError("all_items_failed", message)
    if task.state is State.EXPIRED:
        return ItemError(
            "expired", "The deadline passed before everything was encoded. Submit the rest with more time."
        )
    return None

"""Tasks as clients see them."""

from typing import Literal, Self

from pydantic import BaseModel, Field

from api.schemas.answer_parts import Counts, Reason, Usage, path_here, unix_seconds
from api.waiting.why_waiting import WAITING, Waiting
from tasks.ledger import task as ledger_task
from tasks.ledger.task import State


class Links(BaseModel):
    """Paths of what can be done with a task."""

    self: str
    result: str
    cancel: str


class Task(BaseModel):
    """A task. Times are Unix seconds."""

    id: str = Field(examples=["task_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["embedding.task"] = "embedding.task"
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

    @classmethod
    def of(cls, task: ledger_task.Task, waiting: Waiting | None = None) -> Self:
        """The task of the ledger."""
        here = path_here(f"/v1/tasks/{task.id}")
        return cls(
            id=task.id,
            status=task.state.value,
            lane=task.lane.value,
            created_at=task.created_ms // 1000,
            started_at=unix_seconds(task.started_ms),
            finished_at=unix_seconds(task.finished_ms),
            expires_at=unix_seconds(task.expires_ms),
            deadline=unix_seconds(task.deadline_ms),
            model=task.queue,
            counts=Counts(total=task.total, completed=task.completed, failed=task.failed),
            usage=Usage(prompt_tokens=task.prompt_tokens, total_tokens=task.prompt_tokens),
            error=error_of(task),
            metadata=dict(task.metadata or {}),
            waiting=waiting,
            links=Links(self=here, result=f"{here}/result", cancel=f"{here}/cancel"),
        )


def error_of(task: ledger_task.Task) -> Reason | None:
    """Why it has failed as a whole; None where it has not."""
    if task.state is State.FAILED:
        message = "None of the inputs could be encoded; the result says why for each of them."
        return Reason(code="all_items_failed", message=message)
    if task.state is State.EXPIRED:
        return Reason(code="expired", message="The deadline passed before everything was encoded.")
    return None

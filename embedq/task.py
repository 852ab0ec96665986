"""A task as the server describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

ENDED = frozenset({"completed", "failed", "cancelled", "expired"})


@dataclass(frozen=True, slots=True)
class Counts:
    """Texts of a task: all, with a vector, and without one for good."""

    total: int
    completed: int
    failed: int

    @property
    def done(self) -> int:
        """Texts of which the outcome is known."""
        return self.completed + self.failed


@dataclass(frozen=True, slots=True)
class TextError:
    """Why one text has no vector. `code` is stable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """State of a task at one moment.

    Attributes:
        status: `queued`, `in_progress`, `completed`, `failed`, `cancelled` or `expired`.
        prompt_tokens: tokens encoded so far.
        raw: the whole JSON object of the server.
    """

    id: str
    status: str
    model: str
    counts: Counts
    prompt_tokens: int
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ENDED

    @property
    def succeeded(self) -> bool:
        """Whether every text has its vector."""
        return self.status == "completed" and not self.counts.failed

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """From the server's JSON.

        Raises:
            KeyError, TypeError: it is something else.
        """
        counts = raw["counts"]
        return cls(
            id=raw["id"],
            status=raw["status"],
            model=raw["model"],
            counts=Counts(counts["total"], counts["completed"], counts["failed"]),
            prompt_tokens=raw["usage"]["prompt_tokens"],
            raw=raw,
        )

"""Reading what was committed of a task whose outcomes are no vectors: references to parts, results of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.ledger import results
from tasks.ledger.operations import Operation
from tasks.ledger.types import ItemError, Task


@dataclass(frozen=True, slots=True)
class CommittedUnit:
    """One committed unit: items `first` to `first + items` of the task, and the bytes that a worker committed."""

    first: int
    items: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything committed so far.

    Attributes:
        task: its state at the moment of reading.
        units: in the order of their items; an item that is in none has an error or was never worked on.
        errors: index -> error, of items that failed outside of a part (`worker_lost`, a job's own error).
    """

    task: Task
    units: Sequence[CommittedUnit]
    errors: Mapping[int, ItemError]


def read_committed(task_id: str) -> Operation[Committed | None]:
    """State and committed units of one task; None when the ledger does not hold it."""

    def read(reply: list[Any]) -> Committed | None:
        task = results.task(task_id, reply[0])
        if task is None:
            return None
        parts, errors, _ = results.split(results.pairs(reply[0][4]))
        return Committed(task, tuple(CommittedUnit(*part) for part in sorted(parts)), errors)

    return Operation("read", "", (1, task_id), read)

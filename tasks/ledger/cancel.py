"""Tasks that nobody wants, or not for longer: `lua/cancel.lua`."""

from enum import StrEnum
from typing import Any

from tasks.ledger.scripts import Operation
from tasks.ledger.task import State


class CancelOutcome(StrEnum):
    """What CANCEL did."""

    CANCELLED = "cancelled"
    WAS_CANCELLED = "was_cancelled"
    ENDED = "ended"
    UNKNOWN = "unknown"


def cancel(queue: str, task_id: str) -> Operation[CancelOutcome]:
    """Ends a task: its pieces never start, finished vectors stay readable."""

    def read(states: list[bytes]) -> CancelOutcome:
        if not states[0]:
            return CancelOutcome.UNKNOWN
        before = State(states[0].decode())
        if not before.terminal:
            return CancelOutcome.CANCELLED
        return CancelOutcome.WAS_CANCELLED if before is State.CANCELLED else CancelOutcome.ENDED

    return Operation(read, "cancel", queue, ("cancel", task_id), promised=True)


def forget(queue: str, *task_ids: str) -> Operation[int]:
    """Cancels tasks that are open and removes every trace of all; how many there were."""

    def read(states: list[Any]) -> int:
        return sum(bool(state) for state in states)

    return Operation(read, "cancel", queue, ("forget", *task_ids), promised=True)


def want(queue: str, task_id: str, for_ms: int, *, gone: bool) -> Operation[bool]:
    """Moves the latest moment at which anybody wants an open synchronous task to `for_ms` from now.

    `gone`: the caller has gone; otherwise the moment only moves later. False when the task has ended or has no such
    moment.
    """
    return Operation(bool, "cancel", queue, ("want", task_id, for_ms, int(gone)))

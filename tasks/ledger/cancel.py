"""Tasks that nobody wants, or not for longer: `lua/cancel.lua`."""

from tasks.ledger.scripts import Operation
from tasks.ledger.task import State


def cancel(queue: str, task_id: str) -> Operation[State | None]:
    """Ends a task that is open: its pieces never start, finished vectors stay readable.

    The state that it had before; None where there is no such task.
    """
    return Operation(
        lambda states: State(states[0].decode()) if states[0] else None,
        "cancel",
        queue,
        ("cancel", task_id),
        promised=True,
    )


def forget(queue: str, *task_ids: str) -> Operation[int]:
    """Cancels tasks that are open and removes every trace of all; how many there were."""
    return Operation(lambda states: sum(map(bool, states)), "cancel", queue, ("forget", *task_ids), promised=True)


def want(queue: str, task_id: str, for_ms: int, *, gone: bool) -> Operation[bool]:
    """Moves the latest moment at which anybody wants an open synchronous task to `for_ms` from now.

    `gone`: the caller has gone; otherwise the moment only moves later. False when the task has ended or has no such
    moment.
    """
    return Operation(bool, "cancel", queue, ("want", task_id, for_ms, int(gone)))

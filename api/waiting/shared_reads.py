"""Readings of tasks, shared: all requests that ask for a task before it is read get the same reading.

A change wakes all requests of this process that follow the task, and each of them needs the new state. A reading that
has begun may miss a later change, so only a reading that has yet to begin is shared.
"""

import asyncio
import math
import time

from tasks.ledger import AsyncLedger, Task, operations


class Readings:
    """The readings of this process that have yet to begin, by task."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger
        self._planned: dict[str, _Reading] = {}

    async def task(self, task_id: str, *, not_before_s: float = 0.0) -> Task | None:
        """The task as it is now or a little later; None when the ledger does not hold it.

        Args:
            task_id: whose.
            not_before_s: of the monotonic clock; until then there is time, and others may ask too.

        Raises:
            RedisUnavailable: no answer.
        """
        planned = self._planned.get(task_id)
        if planned is None:
            planned = self._planned[task_id] = _Reading()
            planned.task = asyncio.create_task(self._read(task_id, planned))
        planned.hurry(not_before_s)
        # Shielded: one follower who leaves takes nothing from the others.
        return await asyncio.shield(planned.task)

    def hurry(self, task_id: str) -> None:
        """Lets the task's reading begin at once, if one is planned."""
        planned = self._planned.get(task_id)
        if planned is not None:
            planned.hurry(0.0)

    async def _read(self, task_id: str, planned: "_Reading") -> Task | None:
        await planned.begins.wait()
        del self._planned[task_id]
        return await self._ledger.run(operations.read_task(task_id))


class _Reading:
    """One that begins at the earliest time that anybody asked for."""

    task: "asyncio.Task[Task | None]"

    def __init__(self) -> None:
        self.begins = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = math.inf

    def hurry(self, not_before_s: float) -> None:
        """Lets it begin at this time of the monotonic clock, if it would later."""
        if not_before_s >= self._due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = not_before_s
        in_s = max(0.0, not_before_s - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(in_s, self.begins.set)

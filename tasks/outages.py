"""Since when a task could not be worked on because something that it needs is away."""

import time
from collections.abc import Callable

FORGET_AFTER_S = 3600.0
"""Much longer than any patience: while the storage hangs, many waiting jobs take turns of many seconds each."""


class Outages:
    """Of the tasks of one stream. What has not been missed again for an hour is forgotten."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._seen: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def missed(self, task_id: str) -> bool:
        """Something is away for this task; whether its patience is over."""
        now = self._clock()
        # Another worker may have done it, or nobody ever will: one that was not missed again is another outage's.
        self._seen = {task: times for task, times in self._seen.items() if now - times[1] < FORGET_AFTER_S}
        first, _ = self._seen.get(task_id, (now, now))
        self._seen[task_id] = first, now
        return now - first >= self._patience_s

    def over(self, task_id: str) -> None:
        """The task was worked on."""
        self._seen.pop(task_id, None)

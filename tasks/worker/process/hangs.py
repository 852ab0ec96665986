"""Who hangs? How long a parent, its child or its work may stand still before it is killed.

A watch compares readings: of the page that parent and child share, of the steps of streams and of the documents worker.
The heartbeat asks the watches over the parent and the work, and the parent asks the one over the heartbeat.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

LEAST_CHECKS = 4
"""A reading is compared so often at least before anything hangs: a container that is paused pauses the watch too."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a part of a worker may stand still before it is killed, in seconds.

    Attributes:
        parent_s: without a turn of the parent's loop. Celery does not notice a half-open socket of the broker. A name
            server that does not answer takes 40 s with the usual settings of a cluster.
        child_s: without a turn of the child's heartbeat: something holds its interpreter for ever. Far above the
            longest turn, that of a Redis that hangs.
        work_s: without a step of a claim or a job. Its leases ended long before; its process is replaced, which costs a
            load of the model.
        stop_s: between the word to stop and the end. Below the usual patience with SIGTERM (Compose: 30 s). A stop
            takes about a second. Only a Redis that hangs takes longer, many timeouts in a row, and claims then come
            back by their leases anyway.
    """

    parent_s: float = 120.0
    child_s: float = 120.0
    work_s: float = 300.0
    stop_s: int = 15


DEFAULT_PATIENCE = Patience()


class HangWatch:
    """Says whether a reading has been the same for too long, between its calls; None: nothing is there to hang.

    By a monotonic clock, which stands still while the machine sleeps. The time between two calls counts as a quarter of
    the patience at most.
    """

    def __init__(
        self, reading: Callable[[], object | None], patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.patience_s = patience_s
        self._reading = reading
        self._clock = clock
        self._last: object | None = None
        self._checked_at = 0.0
        self._still_s = 0.0

    def __call__(self) -> bool:
        """Whether the watched part hangs; to be called regularly."""
        now, reading = self._clock(), self._reading()
        if reading is None or reading != self._last:
            self._still_s = 0.0
        else:
            self._still_s += min(now - self._checked_at, self.patience_s / LEAST_CHECKS)
        self._last, self._checked_at = reading, now
        return self._still_s >= self.patience_s


class Progress:
    """The claims that a stream holds, and a counter of its steps. `work_on` is told the ids of the tasks in hand."""

    def __init__(self, work_on: Callable[[Sequence[str]], None] = lambda _: None) -> None:
        self._work_on = work_on
        self._lock = threading.Lock()
        self._held: dict[str, Sequence[str]] = {}
        self._steps = 0
        self._is_outside = False

    def step(self) -> None:
        """The stream did something."""
        self._steps += 1

    @contextmanager
    def holding(self, token: str, task_ids: Sequence[str]) -> Iterator[None]:
        """A claim is in hand until the block ends: committed or given back."""
        self._change(token, task_ids)
        try:
            yield
        finally:
            self._change(token, ())

    @contextmanager
    def outside(self) -> Iterator[None]:
        """The stream waits for a storage until the block ends: no text of its claims is to blame for that."""
        self._is_outside = True
        try:
            yield
        finally:
            self._is_outside = False
            self._steps += 1

    def _change(self, token: str, task_ids: Sequence[str]) -> None:
        with self._lock:
            self._held = {held: ids for held, ids in {**self._held, token: task_ids}.items() if ids}
            self._work_on([name for names in self._held.values() for name in names])
        self._steps += 1

    def tokens(self) -> tuple[str, ...]:
        """Of the claims in hand, whose leases the heartbeat renews."""
        return tuple(self._held)

    def reading(self) -> int | None:
        """For a `HangWatch`: None without a claim, or outside."""
        return self._steps if self._held and not self._is_outside else None

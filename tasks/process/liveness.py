"""What a stream tells the heartbeat thread: which claims it holds, and that it moves."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Whether something stands still: the parent's loop, the work of a stream, a step. For the heartbeat, which asks it.

LOOKS = 4
"""Asked so often at least before anything counts as still: who stops a container stops whoever looks with it."""


def still_watch(
    reading: Callable[[], object], patience_s: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[], bool]:
    """A function that says whether `reading` has been the same for so long, between its calls.

    By a monotonic `clock`, which stands still while the machine sleeps. What passed between two calls counts as a
    quarter of the patience at most.
    """
    seen: object = None
    looked: float | None = None
    still_s = 0.0

    def stands_still() -> bool:
        nonlocal seen, looked, still_s
        now, found = clock(), reading()
        if looked is None or found != seen:
            seen, still_s = found, 0.0
        else:
            still_s += min(now - looked, patience_s / LOOKS)
        looked = now
        return still_s >= patience_s

    return stands_still


OUTSIDE_PATIENCE_S = 300.0
"""With what has a time limit of its own: a storage that never answers must not hold a process for ever either."""


class Progress:
    """Claims in hand and a counter of steps. Leases are renewed only while the counter moves.

    A hung kernel holds the stream's thread, the counter stands still, and its lease runs out; a long job does not.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: set[str] = set()
        self._steps = 0
        self._renewed_at = -1
        self._outside = False

    def step(self) -> None:
        """The stream did something."""
        self._steps += 1

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What the stream does now has a time limit of its own, so that it need not step for its leases."""
        self._outside = True
        try:
            yield
        finally:
            self._outside = False
            self._steps += 1

    def hold(self, token: str) -> None:
        """A claim has been taken."""
        with self._lock:
            self._tokens.add(token)
        self._steps += 1

    def drop(self, token: str) -> None:
        """A claim is done with: committed, released or lost."""
        with self._lock:
            self._tokens.discard(token)
        self._steps += 1

    def held(self) -> tuple[str, ...]:
        """The claims in hand."""
        with self._lock:
            return tuple(self._tokens)

    def to_renew(self) -> tuple[str, ...]:
        """The claims whose leases to renew now: none unless the stream moved since the last call."""
        steps = self._steps
        if steps == self._renewed_at and not self._outside:
            return ()
        self._renewed_at = steps
        return self.held()

    def hang_watch(
        self,
        patience_s: float,
        *,
        outside_s: float = OUTSIDE_PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> Callable[[], bool]:
        """A function that says whether a claim is in hand and nothing has moved for so long, between its calls.

        `outside_s`: the same for what is done `outside`.
        """
        inside, outside = (still_watch(self._reading, limit_s, clock) for limit_s in (patience_s, outside_s))

        def hangs() -> bool:
            still, still_outside = inside(), outside()  # both look each time
            return bool(self.held()) and (still_outside if self._outside else still)

        return hangs

    def _reading(self) -> int:
        return self._steps

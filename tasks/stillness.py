"""Whether something stands still: the parent's loop, the work of a stream, a step. For the heartbeat, which asks it."""

import time
from collections.abc import Callable

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

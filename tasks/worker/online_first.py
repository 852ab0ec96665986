"""Work of the online lane between two passes of work that can wait for it."""

import math
import time
from collections.abc import Callable

ONLINE_PER_BULK = 7
"""Between two steps of bulk work the online lane gets at most this many times their duration."""
SMALL_PER_LIST = 3
"""The same for small pieces of the online lane between two steps of lists. Both have callers who wait."""
QUIET_AFTER_S = 10.0
"""Without an arrival. A caller that asks once a second is served as fast as one that asks a hundred times."""


class RecentWork:
    """When the streams of one process took work of one kind last. Any thread may call; before the first it is quiet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = -math.inf

    def seen(self) -> None:
        """A claim of such work was taken."""
        self._last = self._clock()

    @property
    def expected(self) -> bool:
        """Whether another one is likely."""
        return self._clock() - self._last < QUIET_AFTER_S


class OnlineCheck:
    """Serves the online lane between two steps of other work, without starving that work.

    Args:
        serve: does what the online lane has; whether there was something.
        stop: whether to stop.
        times: the duration of the steps, that it may take.
        clock: in seconds.
    """

    def __init__(
        self,
        serve: Callable[[], bool],
        stop: Callable[[], bool],
        *,
        times: int = ONLINE_PER_BULK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._serve, self._stop, self._times, self._clock = serve, stop, times, clock
        self._resumed = clock()
        self._overdrawn_s = 0.0
        self.spent_s = 0.0
        """On the online lane, in all."""

    def resume(self) -> None:
        """The other work goes on; the time that it has waited until now gives the online lane no turn."""
        self._resumed = self._clock()

    def __call__(self, most_s: float = math.inf) -> None:
        """Between two steps. What a claim takes beyond the allowance is missing later.

        `most_s`: of the time since the other work went on counts. A wait for the storage is no work that others make
        up for.
        """
        began = self._clock()
        allowance = self._times * min(began - self._resumed, most_s) - self._overdrawn_s
        while self._clock() - began <= allowance and not self._stop():
            if not self._serve():
                break
        self._resumed = self._clock()
        spent_s = self._resumed - began
        self._overdrawn_s = max(0.0, spent_s - allowance)
        self.spent_s += spent_s

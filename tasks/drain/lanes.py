"""Urgent texts between two steps of bulk work."""

import math
import time
from collections.abc import Callable

from tasks.drain.rate import ONLINE_PER_BULK
from tasks.errors import RedisUnavailable
from tasks.ledger import Claim

# Whether urgent texts come at all, as the streams of one process have seen.

QUIET_AFTER_S = 10.0
"""Without an urgent text. Whoever asks once a second is served as fast as whoever asks a hundred times."""


class Urgency:
    """When the last urgent text was taken. Any thread may call; before the first one it is quiet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def seen(self) -> None:
        """A claim of urgent texts was taken."""
        self._last = self._clock()

    @property
    def expected(self) -> bool:
        """Whether another one is likely."""
        return self._last is not None and self._clock() - self._last < QUIET_AFTER_S


class OnlineLook:
    """Serves the online lane between two steps of bulk work, without starving the bulk work.

    Args:
        work: does a claim.
        claim_online: takes what the online lane has; it may be nothing.
        stop: whether to stop.
    """

    def __init__(
        self,
        work: Callable[[Claim, Callable[[], Claim]], object],
        claim_online: Callable[[], Claim],
        stop: Callable[[], bool],
    ) -> None:
        self._work = work
        self._claim_online = claim_online
        self._stop = stop
        self._resumed = time.monotonic()
        self.spent_s = 0.0
        """On urgent texts, in all."""

    def resume(self) -> None:
        """The bulk work goes on; what it has waited for until now gives nobody a turn."""
        self._resumed = time.monotonic()

    def __call__(self, most_s: float = math.inf) -> None:
        """`most_s`: of the time since it went on counts. A wait for the storage is no work that others make up for."""
        looked = time.monotonic()
        allowance = ONLINE_PER_BULK * min(looked - self._resumed, most_s)
        while time.monotonic() - looked <= allowance and not self._stop():
            try:
                claim = self._claim_online()
            except RedisUnavailable:
                break
            if not claim.units:
                break
            self._work(claim, self._claim_online)
        self._resumed = time.monotonic()
        self.spent_s += self._resumed - looked

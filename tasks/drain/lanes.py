"""Urgent texts between two steps of bulk work."""

import math
import time
from collections.abc import Callable

from tasks.drain.rate import ONLINE_PER_BULK
from tasks.drain.work import ClaimOnline
from tasks.errors import RedisUnavailable
from tasks.ledger import Claim

QUIET_AFTER_S = 10.0
"""Without an urgent text. A caller that asks once a second is served as fast as one that asks a hundred times."""


class Urgency:
    """When the streams of one process took an urgent text last. Any thread may call; before the first it is quiet."""

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


class OnlineCheck:
    """Serves the online lane between two steps of bulk work, without starving the bulk work.

    Args:
        work: does a claim.
        claim_online: see `ClaimOnline`.
        stop: whether to stop.
    """

    def __init__(
        self, work: Callable[[Claim, ClaimOnline], object], claim_online: ClaimOnline, stop: Callable[[], bool]
    ) -> None:
        self._work = work
        self._claim_online = claim_online
        self._stop = stop
        self._resumed = time.monotonic()
        self.spent_s = 0.0
        """On urgent texts, in all."""

    def resume(self) -> None:
        """The bulk work goes on; the time that it has waited until now gives the online lane no turn."""
        self._resumed = time.monotonic()

    def __call__(self, most_s: float = math.inf) -> None:
        """`most_s`: of the time since it went on counts. A wait for the storage is no work that others make up for."""
        began = time.monotonic()
        allowance = ONLINE_PER_BULK * min(began - self._resumed, most_s)
        while time.monotonic() - began <= allowance and not self._stop():
            try:
                claim = self._claim_online()
            except RedisUnavailable:
                break
            if not claim.units:
                break
            self._work(claim, self._claim_online)
        self._resumed = time.monotonic()
        self.spent_s += self._resumed - began

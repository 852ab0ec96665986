"""One slice of one stream: claim, work, repeat; linger when there is nothing; then let Celery have a look.

Returning from time to time lets Celery stop, restart or time-limit the worker. Nothing here knows Celery.
"""

import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import RedisError

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, Lane, Ledger, operations
from tasks.ledger.operations import ClaimRequest
from tasks.model.gate import Gate
from tasks.rate import Rate, claim_seconds
from tasks.wakeup import Wakeup

_log = logging.getLogger(__name__)

MAX_UNITS_PER_CLAIM = 512
MAX_LINGER_S = 1.0


@dataclass(frozen=True, slots=True)
class DrainLimits:
    """How long a slice and a lease last, and how much a claim takes.

    `unit_s`: of work in one unit; `claim_seconds` makes claims of it. `max_units`: of one claim, however small.
    """

    slice_s: float
    lease_s: float
    unit_s: float
    max_units: int = MAX_UNITS_PER_CLAIM


class Drain:
    """The loop over slices of one stream of a worker process.

    Args:
        ledger: executor of the worker process.
        model: the queue, a served name.
        name: of this stream: the worker's id, a "/" and a number; claims carry it as the first part of their token.
        limits: see `DrainLimits`.
        wakeup: this stream's subscription.
        work: encodes and commits, or gives back, every unit of a claim; gets a function that claims online work.
        rate: how fast this stream is; sizes its claims.
        gate: to work beside the other streams, or alone.
        hears: the first claim of a slice clears the bell. One stream of a process does: the slice of all of them has
            taken one message, and may ring for one more.
        send_bell: sends one bell message; must not raise.
        stop: whether to stop.
        urgent: whether texts that cannot wait are to be expected.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        name: str,
        limits: DrainLimits,
        *,
        wakeup: Wakeup,
        work: Callable[[Claim, Callable[[], Claim]], None],
        rate: Rate,
        gate: Gate,
        hears: bool,
        send_bell: Callable[[], None],
        stop: Callable[[], bool],
        urgent: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._name = name
        self._limits = limits
        self._wakeup = wakeup
        self._work = work
        self._rate = rate
        self._gate = gate
        self._hears = hears
        self._send_bell = send_bell
        self._stop = stop
        self._urgent = urgent
        self._numbers = itertools.count()
        # The start time makes tokens unique over the restarts of a child under the same parent.
        self._incarnation = f"{time.time_ns():x}"

    def run_slice(self) -> None:
        """One slice. Never raises when Redis is away: the worker looks for work again when it is back."""
        try:
            self._wakeup.open()
            worked = self._run(time.monotonic() + self._limits.slice_s)
            left = operations.leave(self._model, self._name, warm=worked and not self._stop())
            self._ring(self._ledger.run(left))
        except (RedisUnavailable, RedisError) as error:
            self._wakeup.close()
            _log.warning("slice ended early: Redis is unavailable (%s)", type(error).__name__)

    def claim_online(self) -> Claim:
        """What the online lane has, for a look between two micro-batches of bulk work; it may be empty."""
        return self._claim(bulk_s=0, linger_s=0, heard=False, online_only=True)

    def _run(self, until: float) -> bool:
        """Claims until the slice is over; whether any claim took something."""
        worked, heard, alone = False, self._hears, self._gate.single
        while not self._stop():
            left = until - time.monotonic()
            with self._gate.alone() if alone else self._gate.beside_others():
                if self._stop():
                    break
                claim = self._claim(
                    # No more than fits into the slice: a slice ends for all streams with the claim that ends last.
                    bulk_s=max(left, self._limits.unit_s),
                    linger_s=max(0.0, min(left, MAX_LINGER_S)),
                    heard=heard,
                    alone=alone,
                )
                if claim.units:
                    worked = True
                    self._work(claim, self.claim_online)
            heard, alone = False, claim.suspects or self._gate.single
            if claim.wait_ms:
                self._wakeup.wait(claim.wait_ms / 1000, self._stop)
                continue  # a drain leaves its linger only through another CLAIM, or a wake-up would be lost
            if time.monotonic() >= until:
                break
        return worked

    def _claim(
        self, *, bulk_s: float, linger_s: float, heard: bool, alone: bool = False, online_only: bool = False
    ) -> Claim:
        most_s = claim_seconds(Lane.BULK, self._limits.unit_s, urgent=self._urgent())
        request = ClaimRequest(
            worker=self._name,
            token=f"{self._name}/{self._incarnation}/{next(self._numbers)}",
            budget=self._rate.budget(min(bulk_s, most_s)),
            online_budget=self._rate.budget(claim_seconds(Lane.ONLINE, self._limits.unit_s)),
            max_units=self._limits.max_units,
            lease_ms=int(self._limits.lease_s * 1000),
            linger_ms=int(linger_s * 1000),
            heard=heard,
            online_only=online_only,
            alone=alone,
            rate=self._rate.tokens_per_s,
        )
        claim = self._ledger.run(operations.claim(self._model, request))
        self._ring(claim.ring)
        return claim

    def _ring(self, won: bool) -> None:
        if won:
            self._send_bell()

"""One slice of one stream: claim, work, repeat; linger when there is nothing; then let Celery have a look.

Returning from time to time lets Celery stop, restart or time-limit the worker. Nothing here knows Celery.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import RedisError

from tasks.drain.commit import Settlement
from tasks.drain.rate import Rate, claim_seconds
from tasks.drain.suspects import Suspects
from tasks.drain.wakeup import Wakeup
from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, Lane, Ledger, operations
from tasks.ledger.operations import ClaimRequest

# A slice of all streams of a process: it is over when every stream has ended the claim that it took in time.


class JointSlice:
    """What the streams share. `streams`: how many take part."""

    def __init__(self, streams: int = 1) -> None:
        self._lock = threading.Lock()
        self._within = streams

    def ended(self) -> None:
        """A stream has no claim any more that it took in time."""
        with self._lock:
            self._within -= 1

    @property
    def over(self) -> bool:
        """Whether no stream has."""
        return self._within <= 0


class Part:
    """One stream's part of a slice of `slice_s` seconds, which begins now."""

    def __init__(self, together: JointSlice, slice_s: float) -> None:
        self._together = together
        self._until = time.monotonic() + slice_s
        self._ended = False

    @property
    def left_s(self) -> float:
        """Below 0 when the stream goes on for the others' sake."""
        return self._until - time.monotonic()

    def goes_on(self) -> bool:
        """Whether the stream may take another claim; not to be asked while it holds one."""
        if self.left_s > 0:
            return True
        self.end()
        return not self._together.over

    def end(self) -> None:
        """The stream's time is over, or it leaves."""
        if not self._ended:
            self._ended = True
            self._together.ended()


_log = logging.getLogger(__name__)

MAX_UNITS_PER_CLAIM = 512
MAX_LINGER_S = 1.0
LATE_LINGER_S = 0.1
"""When the slice goes on for another stream's claim alone."""
SUSPECTS_WAIT_S = 0.1


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
        work: encodes and commits, or gives back, every unit of a claim; gets a function that claims online work. False
            when something that it needs is away.
        rate: how fast this stream is; sizes its claims.
        settlement: gives back what is owed, before anything is claimed.
        suspects: when this process does one, alone.
        single: the process has no other stream.
        hears: the first claim of a slice clears the bell. One stream of a process does: the slice of all of them has
            taken one message, and may ring for one more.
        send_bell: sends one bell message; must not raise.
        stop: whether to stop.
        urgent: whether texts that cannot wait are to be expected.
        stamp: of the model, as in `ClaimRequest`.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        name: str,
        limits: DrainLimits,
        *,
        wakeup: Wakeup,
        work: Callable[[Claim, Callable[[], Claim]], bool],
        rate: Rate,
        settlement: Settlement,
        suspects: Suspects,
        single: bool,
        hears: bool,
        send_bell: Callable[[], None],
        stop: Callable[[], bool],
        urgent: Callable[[], bool] = lambda: False,
        stamp: str = "",
    ) -> None:
        self._ledger = ledger
        self._model = model
        self._name = name
        self._limits = limits
        self._wakeup = wakeup
        self._work = work
        self._rate = rate
        self._settlement = settlement
        self._suspects = suspects
        self._single = single
        self._hears = hears
        self._send_bell = send_bell
        self._stop = stop
        self._urgent = urgent
        self._stamp = stamp
        self._numbers = itertools.count()
        self._suspects_wait = False
        # The start time makes tokens unique over the restarts of a child under the same parent.
        self._incarnation = f"{time.time_ns():x}"

    def run_slice(self, together: JointSlice | None = None) -> None:
        """One slice. Never raises when Redis is away: the worker looks for work again when it is back.

        `together`: of all streams of the process; None: there is no other one.

        Raises:
            ModelChanged: workers serve another model now; this process must be replaced.
        """
        part = Part(together or JointSlice(), self._limits.slice_s)
        try:
            self._wakeup.open()
            worked = self._run(part)
            self._ring(self._settlement.release_owed())
            left = operations.leave(self._model, self._name, warm=worked and not self._stop())
            self._ring(self._ledger.run(left))
        except (RedisUnavailable, RedisError) as error:
            self._wakeup.close()
            _log.warning("slice ended early: Redis is unavailable (%s)", type(error).__name__)
            self._ring(self._settlement.release_when_back())
        finally:
            part.end()

    def claim_online(self) -> Claim:
        """What the online lane has, for a look between two micro-batches of bulk work; it may be empty.

        Before it suspects have their turn: a claim of bulk work may last for minutes.
        """
        if self._suspects_wait:
            self._suspects.turn(self._do_suspect, idle=False)
        return self._claim(online_only=True)

    def _run(self, part: Part) -> bool:
        """Claims until the slice is over; whether any claim took something."""
        worked, heard, lingers = False, self._hears, True
        while not self._stop():
            self._wakeup.open()  # a wait that lost its connection has closed it, and nobody could wake this stream
            left_s = part.left_s
            claim = self._claim(
                # No more than fits into the slice: a slice ends for all streams with the claim that ends last.
                bulk_s=max(left_s, self._limits.unit_s),
                linger_s=max(LATE_LINGER_S, min(left_s, MAX_LINGER_S)) if lingers else 0,
                heard=heard,
            )
            heard = False
            if claim.units:
                worked = True
                self._work(claim, self.claim_online)
            if self._suspects_wait:
                if self._suspects.turn(self._do_suspect, idle=not claim.units):
                    worked = True
                elif not claim.units:  # another stream is at it, or the storage is away; new work is looked for
                    self._wakeup.wait(SUSPECTS_WAIT_S, self._stop)
            if claim.wait_ms:
                self._wakeup.wait(claim.wait_ms / 1000, self._stop)
                lingers = part.goes_on()
                continue  # a drain leaves its linger only through another CLAIM, or a wake-up would be lost
            if not part.goes_on():
                break
        return worked

    def _do_suspect(self) -> bool:
        """Claims one and does it. Nothing else runs in this process meanwhile."""
        if self._stop():
            return False
        claim = self._claim(suspect=True)
        return bool(claim.units) and self._work(claim, self.claim_online)

    def _claim(
        self,
        *,
        bulk_s: float = 0,
        linger_s: float = 0,
        heard: bool = False,
        online_only: bool = False,
        suspect: bool = False,
    ) -> Claim:
        self._ring(self._settlement.release_owed())
        most_s = claim_seconds(Lane.BULK, self._limits.unit_s, urgent=self._urgent())
        request = ClaimRequest(
            worker=self._name,
            token=f"{self._name}/{self._incarnation}/{next(self._numbers)}",
            budget=self._rate.budget(min(bulk_s, most_s)),
            online_budget=self._rate.budget(claim_seconds(Lane.ONLINE, self._limits.unit_s)),
            max_units=self._limits.max_units,
            lease_ms=int(self._limits.lease_s * 1000),
            linger_ms=int(linger_s * 1000),
            rang=heard,
            online_only=online_only,
            alone=self._single,
            rate=self._rate.tokens_per_s,
            suspect=suspect,
            stamp=self._stamp,
        )
        try:
            claim = self._ledger.run(operations.claim(self._model, request))
        except RedisUnavailable:
            self._settlement.owe(request.token)  # it may hold what nobody works on
            raise
        self._suspects_wait = claim.suspects
        self._ring(claim.ring)
        return claim

    def _ring(self, won: bool) -> None:
        if won:
            self._send_bell()

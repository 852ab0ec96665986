"""One slice of one stream: claim, work, repeat; linger when there is nothing; then let Celery have a look.

Returning from time to time lets Celery stop, restart or time-limit the worker. Nothing here knows Celery, nor what the
work is.
"""

import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import RedisError

from tasks.drain.commit import Committer
from tasks.drain.suspects import Suspects
from tasks.drain.work import Work
from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, Ledger, operations
from tasks.ledger.executor import reason
from tasks.ledger.operations import ClaimRequest
from tasks.process.wakeup import Wakeup
from worker_config.traces import Traces

_log = logging.getLogger(__name__)

MAX_LINGER_S = 1.0
LATE_LINGER_S = 0.1
"""When the slice goes on for another stream's claim alone."""
SUSPECTS_WAIT_S = 0.1


class JointSlice:
    """A slice of all streams of a process: it is over when every stream has ended the claim that it took in time.

    `streams`: how many take part.
    """

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


class StreamSlice:
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


@dataclass(frozen=True, slots=True)
class Consumer:
    """One process as a consumer of a queue; all its streams share this.

    Attributes:
        ledger: executor of the process.
        queue: whose work it does.
        worker: its id.
        slice_s: how long a slice lasts.
        lease_s: how long a claim lasts unless it is renewed.
        committer: gives back what is owed, before anything is claimed.
        suspects: when this process does one, alone.
        send_bell: sends one bell message; must not raise.
        stop: whether to stop.
        single: the process has one stream.
        stamp: of the model, as in `ClaimRequest`.
        traces: of the process; None: there are none.
    """

    ledger: Ledger
    queue: str
    worker: str
    slice_s: float
    lease_s: float
    committer: Committer
    suspects: Suspects
    send_bell: Callable[[], None]
    stop: Callable[[], bool]
    single: bool = True
    stamp: str = ""
    traces: Traces | None = None


class Drain:
    """The loop over slices of one stream of a worker process.

    Args:
        consumer: the process.
        number: of this stream in it. Claims carry the worker's id, a "/" and this number as the first part of their
            token.
        work: says how much to claim, and does it.
    """

    def __init__(self, consumer: Consumer, number: int, work: Work) -> None:
        self._consumer = consumer
        self._ledger, self._queue, self._stop = consumer.ledger, consumer.queue, consumer.stop
        self._name = f"{consumer.worker}/{number}"
        # One stream of a process clears the bell with its first claim: the slice of all of them has taken one message,
        # and may send one more. When each stream did, every slice sent as many, and messages piled up.
        self._clears_bell = number == 0
        self._work = work
        self._wakeup = Wakeup(self._ledger, self._queue, self._name)
        self._numbers = itertools.count()
        self._suspects_wait = False
        self._said = ""
        """Why its last slice ended early."""
        self._asked: ClaimRequest | None = None
        """The claim with which it lingers: it may have been handed work under this token, of which it does not know."""
        # The start time makes tokens unique over the restarts of a child under the same parent.
        self._incarnation = f"{time.time_ns():x}"

    def run_slice(self, together: JointSlice | None = None) -> None:
        """One slice. Never raises when Redis is away: the worker looks for work again when it is back.

        `together`: of all streams of the process; None: there is no other one.

        Raises:
            ModelChanged: workers serve another model now; this process must be replaced.
        """
        part = StreamSlice(together or JointSlice(), self._consumer.slice_s)
        committer = self._consumer.committer
        try:
            self._wakeup.open()
            worked = self._run(part)
            self._send_bell_if(committer.release_owed())
            token = self._asked.token if self._asked else ""
            left = operations.leave(self._queue, self._name, warm=worked and not self._stop(), token=token)
            self._send_bell_if(self._ledger.run(left))
            self._asked, self._said = None, ""
        except (RedisUnavailable, RedisError) as error:
            self._wakeup.close()
            if self._asked:
                committer.owe(self._asked.token)
                self._asked = None
            if reason(error) != self._said:
                self._said = reason(error)
                _log.warning("slice ended early, Redis is unavailable: %s", self._said)
            self._send_bell_if(committer.release_when_back())
        finally:
            part.end()

    def close(self) -> None:
        """Ends the subscription. No slice runs any more."""
        self._wakeup.close()

    def _run(self, part: StreamSlice) -> bool:
        """Claims until the slice is over; whether any claim took something."""
        worked, rang, lingers = False, self._clears_bell, True
        handed: Claim | None = None
        while not self._stop():
            # A wait that lost its connection has closed it. Nobody could wake this stream, which would not wait either:
            # it claimed hundreds of times a second.
            self._wakeup.open()
            left_s = part.left_s
            linger_s = max(LATE_LINGER_S, min(left_s, MAX_LINGER_S)) if lingers else 0
            if handed is None:
                claim = self._claim(left_s, linger_s=linger_s, rang=rang)
            else:
                claim, handed, self._asked = handed, None, None
            rang = False
            if claim.units:
                worked = True
                self._work(claim, self._claim_online)
            if self._suspects_wait:
                if self._consumer.suspects.turn(self._do_suspect, idle=not claim.units):
                    worked = True
                elif not claim.units:  # another stream is at it, or the storage is away; new work is looked for
                    self._wakeup.wait(SUSPECTS_WAIT_S, self._stop)
            if claim.wait_ms:
                handed = self._handed(self._wakeup.wait(claim.wait_ms / 1000, self._stop))
                lingers = handed is not None or part.goes_on()
                continue  # to what it was handed, to another CLAIM or to LEAVE: or a wake-up, or a claim, would be lost
            if not part.goes_on():
                break
        return worked

    def _claim_online(self, *, small_only: bool = False) -> Claim:
        # Suspects have their turn first: a claim of bulk work may last for minutes.
        if self._suspects_wait:
            self._consumer.suspects.turn(self._do_suspect, idle=False)
        return self._claim(online_only=True, small_only=small_only)

    def _do_suspect(self) -> bool:
        """Claims one and does it. Nothing else runs in this process meanwhile."""
        if self._stop():
            return False
        claim = self._claim(suspect=True)
        return bool(claim.units) and self._work(claim, self._claim_online)

    def _claim(
        self,
        left_s: float = 0,
        *,
        linger_s: float = 0,
        rang: bool = False,
        online_only: bool = False,
        small_only: bool = False,
        suspect: bool = False,
    ) -> Claim:
        committer = self._consumer.committer
        self._send_bell_if(committer.release_owed())
        size = self._work.claim_size(left_s)
        asked, self._asked = self._asked, None
        request = ClaimRequest(
            worker=self._name,
            token=asked.token if asked else f"{self._name}/{self._incarnation}/{next(self._numbers)}",
            budget=size.bulk_cost,
            online_budget=size.online_cost,
            large_budget=size.large_cost,
            max_units=size.max_units,
            lease_ms=int(self._consumer.lease_s * 1000),
            linger_ms=int(linger_s * 1000),
            rang=rang,
            online_only=online_only,
            small_only=small_only,
            alone=self._consumer.single,
            rate=size.rate,
            suspect=suspect,
            stamp=self._consumer.stamp,
        )
        began_ns = time.time_ns()
        try:
            claim = self._ledger.run(operations.claim(self._queue, request))
        except (RedisUnavailable, RedisError):
            committer.owe(request.token)  # it may hold units on which nobody works
            raise
        if claim.wait_ms:
            self._asked = request
        return self._taken(claim, began_ns)

    def _handed(self, message: bytes | None) -> Claim | None:
        """What SUBMIT has claimed for this stream while it waited."""
        claim = operations.handed_claim(message) if message else None
        if claim is None:
            return None
        if self._asked is None or claim.token != self._asked.token:
            self._consumer.committer.owe(claim.token)  # of an earlier wait: nobody works on it
            return None
        return self._taken(claim, time.time_ns())

    def _taken(self, claim: Claim, began_ns: int) -> Claim:
        if self._consumer.traces is not None:
            traced = self._consumer.traces.claimed(self._queue, claim.units, began_ns)
            claim = dataclasses.replace(claim, trace=traced)
        self._suspects_wait = claim.suspects
        self._send_bell_if(claim.bell_due)
        return claim

    def _send_bell_if(self, due: bool) -> None:
        if due:
            self._consumer.send_bell()

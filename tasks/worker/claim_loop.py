"""A stream: claim, work, wait; one thread. Nothing here knows Celery, nor what the work is.

All streams of a process look for work from the moment they are woken until none of them has had any for ten seconds,
and end that together. A bell wakes them, and the heartbeat when it sees work: a bell may be lost, or refused by a full
Redis.
"""

import dataclasses
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.commit import CommitCode, CommitReply
from tasks.ledger.redis_keys import wake_channel
from tasks.ledger.task import Outcome
from tasks.worker.commit_claim import Claims
from tasks.worker.idle_wait import Wakeup
from tasks.worker.process.hangs import Progress
from tasks.worker.process.stop import Stopping
from worker_config.subject import about_tasks

_log = logging.getLogger(__name__)

IDLE_S = 10.0
"""Without work. Until then a stream waits for its wake-up, and a lone query needs no message of Celery."""
LINGER_S = 1.0
"""Between two looks of a stream that waits."""
MAX_PIECES = 512


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimSize:
    """How much the next claim of a stream may take.

    Attributes:
        bulk_cost: of the bulk lane; at least one piece is taken, whatever it costs.
        online_cost: likewise.
        rate: cost that the stream does in a second, by which streams share what waits.
        max_pieces: of one claim, however small.
    """

    bulk_cost: int
    online_cost: int
    rate: float
    max_pieces: int = MAX_PIECES


class Work(Protocol):
    """One kind of work, as one stream does it."""

    def claim_size(self) -> ClaimSize:
        """How much to claim now."""
        ...

    def __call__(self, claim: Claim, stream: "Stream", /) -> None:
        """Commits or gives back every piece of the claim, through the stream.

        Raises:
            Stopping: what is left is to be given back.
            Exception: so it is, and its texts may be at fault.
        """
        ...


class Streams:
    """The threads of a process, asleep at first.

    Args:
        claims: which they share.
        works: of each one, with its progress.
        leave: ends this process with an exit code; called when it must be replaced and no stream works any more.
        idle_s: without work, after which they sleep.
    """

    def __init__(
        self,
        claims: Claims,
        works: Sequence[tuple[Work, Progress]],
        *,
        leave: Callable[[int], object] = os._exit,
        idle_s: float = IDLE_S,
    ) -> None:
        self._claims = claims
        self._leave = leave
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._called = 0
        self._answered = [0] * len(works)
        self._rang = self._finished = False
        self._awake: set[int] = set()
        self._at_work = 0
        self._until = 0.0
        self._threads = [
            threading.Thread(target=self._run, args=(Stream(claims, number, self, *work), number), daemon=True)
            for number, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self, *, rang: bool) -> None:
        """All streams look for work; returns at once. `rang`: a bell has been heard."""
        with self._changed:
            self._called += 1
            self._rang = self._rang or rang
            self._until = time.monotonic() + self._idle_s
            self._changed.notify_all()

    def wait_idle(self) -> None:
        """Returns when all streams have looked for work since they were called last, and sleep or have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._awake and min(self._answered) >= self._called)

    def finish(self, patience_s: float) -> None:
        """No stream wakes any more; those at work hear of a stop from `claims.stop`. Waits so long for them."""
        until = time.monotonic() + patience_s
        with self._changed:
            self._finished = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def left_s(self) -> float:
        """Until all go to sleep. While one works, the others wait for more."""
        with self._changed:
            return self._idle_s if self._at_work else max(0.0, self._until - time.monotonic())

    def heard(self) -> bool:
        """Whether a bell has been heard since somebody asked: one claim tells the ledger so."""
        with self._changed:
            rang, self._rang = self._rang, False
            return rang

    def at_work(self, change: int) -> None:
        """So many streams more hold a claim."""
        with self._changed:
            self._at_work += change
            self._until = time.monotonic() + self._idle_s

    def _run(self, stream: "Stream", number: int) -> None:
        broken = self._claims.broken
        try:
            while self._next(number):
                try:
                    stream.work_until_idle()
                except MemoryError:  # with no claim in hand: its work knows what to do then
                    _log.error("a stream ran out of memory outside of its work")
                    self.wake(rang=False)
                with self._changed:
                    self._awake.discard(number)
                    self._changed.notify_all()
        except Stopping:
            pass
        except self._claims.breaks as error:
            _log.critical("this process cannot go on (%s); a new one takes over", error)
            broken.set()
        except BaseException:  # noqa: BLE001 - the boundary of a thread: with one stream less a process looks healthy
            _log.exception("a stream failed; a new process takes over")
            broken.set()
        stream.close()
        with self._changed:
            self._awake.discard(number)
            self._answered[number] = sys.maxsize
            self._changed.notify_all()
            last = min(self._answered) == sys.maxsize
        if last and broken.is_set():
            self._leave(os.EX_SOFTWARE)

    def _next(self, number: int) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._answered[number] < self._called or self._ends())
            if self._ends():
                return False
            self._answered[number] = self._called
            self._awake.add(number)
            return True

    def _ends(self) -> bool:
        return self._finished or self._claims.broken.is_set()


class Stream:
    """One thread with a claim at a time, and with those of online work between two steps of it.

    Args:
        claims: of the process.
        number: of this stream in it. Claims carry the worker's id, a "/" and this number as the first part of their
            token.
        streams: all of the process.
        work: says how much to claim, and does it.
        progress: what it holds, for the heartbeat.
    """

    def __init__(self, claims: Claims, number: int, streams: Streams, work: Work, progress: Progress) -> None:
        self.progress = progress
        self._claims, self._stop = claims, claims.stop
        self._name = f"{claims.worker}/{number}"
        self._streams = streams
        self._work = work
        self._wakeup = Wakeup(self._claims.ledger, wake_channel(self._claims.queue, self._name))
        # The time makes tokens unique over the children under one name.
        self._tokens = map(f"{self._name}/{time.time_ns():x}/{{}}".format, itertools.count())
        self._own = ""
        """Token of the claim that is no online work between two steps: behind its last commit the stream may wait."""
        self._wait_ms = 0

    def work_until_idle(self) -> None:
        """Claims and works until all streams of the process are idle, or a stop was asked for.

        Raises:
            ModelChanged: workers serve another model now; this process must be replaced. So must it after `breaks`.
            Stopping: Redis is away.
        """
        while not self._stop():
            # Whoever is registered as waiting without a subscription would be passed over.
            self._claims.patiently(self._wakeup.open, self.progress)
            # With 0 it is registered no more, and what it gets then it does: nobody is told of work in vain.
            linger_s = min(LINGER_S, self._streams.left_s())
            taken = self._claim(self._work.claim_size(), linger_s=linger_s, rang=self._streams.heard())
            self._wait_ms = taken.wait_ms
            if taken.pieces:
                self._own = taken.token
                self._streams.at_work(1)
                try:
                    self._do(taken)
                finally:
                    self._streams.at_work(-1)
            elif not linger_s and not taken.wait_ms:
                return
            if self._wait_ms:
                self._wakeup.wait(self._wait_ms / 1000, self._stop)

    def serve_online(self, size: ClaimSize, *, no_lists: bool = False) -> bool:
        """Claims what the online lane has and does it; whether there was something. For work that can wait for it.

        `no_lists`: no pieces of several texts that alone reach the size, for work of this kind itself.
        """
        taken = self._claim(size, online_only=True, no_lists=no_lists)
        if taken.pieces:
            self._do(taken)
        return bool(taken.pieces)

    def commit(self, claim: Claim, outcomes: Sequence[Outcome], *, last: bool, spent: int = 0) -> CommitReply:
        """See `Claims.commit`. `last`: nothing is left of the claim, so the stream waits for more where there is none.

        Raises:
            Stopping: Redis is away.
        """
        linger_ms = int(LINGER_S * 1000) if last and claim.token == self._own else 0
        reply = self._claims.commit(claim, outcomes, self.progress, spent=spent, stream=self._name, linger_ms=linger_ms)
        self._wait_ms = reply.wait_ms
        # COMMIT ends a claim of which it got every piece at once. Any other would be held until its lease ends, and
        # beside a text that is tried alone this process would do nothing as long.
        if last and (len(outcomes) < len(claim.pieces) or CommitCode.STALE in reply.codes):
            self.give_back(claim)
        return reply

    def give_back(self, claim: Claim, *, blame: bool = False) -> None:
        """See `Claims.give_back`."""
        self._claims.give_back(claim, self.progress, blame=blame)

    def close(self) -> None:
        """Ends the subscription."""
        self._wakeup.close()

    def _do(self, claim: Claim) -> None:
        claims = self._claims
        with about_tasks(claim.task_ids), self.progress.holding(claim.token, claim.task_ids):
            try:
                self._work(claim, self)
            except Stopping:
                self.give_back(claim)
            except claims.breaks:
                # A text may have broken the device, so this claim is to blame, and none around or beside it.
                blame = not claims.broken.is_set()
                claims.broken.set()  # before it is given back, or another stream would take it here
                self.give_back(claim, blame=blame)
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the other texts must not wait for the lease's end
                _log.error("a claim of %d pieces failed with %s", len(claim.pieces), type(error).__name__)
                self.give_back(claim, blame=True)

    def _claim(
        self,
        size: ClaimSize,
        *,
        linger_s: float = 0,
        rang: bool = False,
        online_only: bool = False,
        no_lists: bool = False,
    ) -> Claim:
        claims = self._claims
        request = ClaimRequest(
            stream=self._name,
            token=next(self._tokens),
            budget=size.bulk_cost,
            online_budget=size.online_cost,
            max_pieces=size.max_pieces,
            lease_ms=int(claims.lease_s * 1000),
            linger_ms=int(linger_s * 1000),
            rang=rang,
            online_only=online_only,
            no_lists=no_lists,
            rate=size.rate,
            stamp=claims.stamp,
        )
        began_ns = time.time_ns()
        # With the same token: the reply to a claim that was made may be lost.
        try:
            taken = claims.patiently(lambda: claims.ledger.run(claim(claims.queue, request)), self.progress)
        except MemoryError:
            _log.error("a claim did not fit into memory; its texts are tried alone")
            taken = Claim(request.token, (), None, more=False, wait_ms=0, bell_due=False)
            self.give_back(taken, blame=True)
        claims.ring_if(taken.bell_due)
        if taken.pieces:
            claims.count({"claims": 1})
            if claims.traces is not None:
                traced = claims.traces.claimed(claims.queue, taken.pieces, began_ns)
                taken = dataclasses.replace(taken, trace=traced)
        return taken

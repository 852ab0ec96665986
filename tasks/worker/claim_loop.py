"""Streams: threads that claim, work and wait. Nothing here knows Celery, nor what the work is.

All streams of a process look for work from the moment they are woken until none of them has had any for ten seconds,
and end that together. A bell wakes them, and the heartbeat when it sees work: a bell may be lost, or refused by a full
Redis. Where Redis is away, a stream waits until it is back.
"""

import dataclasses
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol, TypeVar

from tasks.errors import RedisUnavailable
from tasks.ledger.claim import Claim, ClaimRequest, claim
from tasks.ledger.client import Ledger, reason
from tasks.ledger.commit import CommitCode, CommitReply, commit
from tasks.ledger.give_back import give_back
from tasks.ledger.overview import took_counts
from tasks.ledger.redis_keys import wake_channel
from tasks.ledger.task import Outcome
from tasks.worker.idle_wait import Wakeup
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.hangs import Progress
from tasks.worker.process.stop import Stopping
from worker_config.logs import about_tasks
from worker_config.redis_connection import refusal
from worker_config.telemetry import ClaimTrace

T = TypeVar("T")

_log = logging.getLogger(__name__)

IDLE_S = 10.0
"""Without work. Until then a stream waits for its wake-up, and a lone query needs no message of Celery."""
LINGER_S = 1.0
"""Between two looks of a stream that waits."""
ANSWERED_S = 2.0
MAX_PIECES = 512
_RETRY_S = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimSize:
    """How much the next claim of a stream may take.

    Attributes:
        bulk_cost: of the bulk lane; at least one piece is taken, whatever it costs.
        online_cost: likewise.
        rate: cost that the stream does in a second, by which streams share what waits.
    """

    bulk_cost: int
    online_cost: int
    rate: float


class Work(Protocol):
    """One kind of work, as all streams of a process do it."""

    def claim_size(self) -> ClaimSize:
        """How much a stream is to claim now."""
        ...

    def __call__(self, claim: Claim, stream: "Stream", /) -> None:
        """Commits pieces of the claim through the stream. What is left afterwards is given back.

        Raises:
            Stopping: it leaves the rest.
            Exception: so it does, and the texts of the claim may be at fault.
        """
        ...


class Streams:
    """The streams of a process in one queue, and what came of their claims. Asleep at first: those have no thread.

    Args:
        queue: a served name, or that of the documents queue.
        number: of streams.
        stamp: of the model, as in `ClaimRequest`.
        breaks: what says that this process must be replaced.
        keeps_one: for work that takes long. A stream whose neighbours all work for one owner takes no more of his, so
            another owner finds a free stream.
    """

    def __init__(
        self,
        child: WorkerChild,
        ledger: Ledger,
        queue: str,
        work: Work,
        *,
        number: int = 1,
        stamp: str = "",
        breaks: tuple[type[Exception], ...] = (),
        keeps_one: bool = False,
        idle_s: float = IDLE_S,
    ) -> None:
        self.child, self.ledger, self.queue, self.work = child, ledger, queue, work
        self.stamp, self.breaks, self._keeps_one, self._idle_s = stamp, breaks, keeps_one, idle_s
        self.broken = threading.Event()
        """This process must be replaced: the heartbeat ends it."""
        self._lock = threading.Lock()
        self._totals: Counter[str] = Counter()
        self._away: dict[int, str] = {}
        """Why the last call of a thread failed. One may be refused what others may: subscribing needs more rights."""
        self.progress = [Progress(partial(child.shared.work_on, n)) for n in range(number)]
        self.refused = ""
        """What Redis refuses some thread, although it serves others; "": nothing."""
        self._streams = [Stream(self, n, each) for n, each in enumerate(self.progress)]
        self._claiming = threading.Lock()
        self._awake: dict[Stream, threading.Thread] = {}
        self._rang = self._finished = False
        self._until = 0.0
        child.on_bell = partial(self.wake, rang=True)

    def wake(self, *, rang: bool) -> None:
        """All streams look for work; returns at once. `rang`: a bell has been heard."""
        self.stay_awake()
        with self._lock:
            self._rang = self._rang or rang
            for stream in self._streams:
                if stream not in self._awake and not self.stop():
                    self._awake[stream] = threading.Thread(target=self._run, args=(stream,), daemon=True)
                    self._awake[stream].start()

    def finish(self, patience_s: float) -> None:
        """Ends the streams; waits so long for those at work. Others end when Redis answers, if it does not hang."""
        self._finished = True
        began = time.monotonic()
        for stream, thread in list(self._awake.items()):
            for wait_s in (min(ANSWERED_S, patience_s), patience_s):
                thread.join(max(0.0, began + wait_s - time.monotonic()))
                if stream.progress.reading() is None:
                    break
        for stream in self._streams:
            stream.close()

    def stop(self) -> bool:
        """Whether to leave the work: a stop was asked for, or the process must be replaced."""
        return self._finished or self.broken.is_set() or self.child.shared.stopping()

    def stay_awake(self) -> None:
        """There was work, or there may be some."""
        self._until = time.monotonic() + self._idle_s

    def left_s(self) -> float:
        """Until all go to sleep."""
        return max(0.0, self._until - time.monotonic())

    def heard_bell(self) -> bool:
        """Whether a bell has been heard since somebody asked: one claim tells the ledger so."""
        with self._lock:
            rang, self._rang = self._rang, False
            return rang

    def ring_if(self, due: bool) -> None:
        """Sends a bell if the ledger has said that one is due."""
        if due:
            self.child.send_bell(self.queue)

    @contextmanager
    def choosing(self, stream: "Stream") -> Iterator[str]:
        """Around a claim of this stream: the owner whose work it passes over; "": nobody's."""
        if not self._keeps_one:
            yield ""
            return
        with self._claiming:  # two that claim at once would take the last stream
            owners = {other.works_for for other in self._streams if other is not stream}
            yield owners.pop() if len(owners) == 1 else ""

    def count(self, done: Mapping[str, int]) -> None:
        """So much more is done."""
        with self._lock:
            self._totals.update(done)

    def counted(self) -> dict[str, int]:
        """What the streams have done since the process is ready, by the names of the queue's counters."""
        with self._lock:
            return {name: number for name, number in self._totals.items() if number}

    def unheard(self, error: Exception) -> None:
        """Redis did not answer this thread: each reason is said once an outage."""
        why = reason(error)
        with self._lock:
            said = why in self._away.values()
            self._away[threading.get_ident()] = why
            if refusal(error.__cause__ or error):
                self.refused = why.rstrip(".")
        if not said:
            _log.warning("Redis is unavailable, this worker goes on when it is back: %s", why)

    def heard(self) -> None:
        """Redis answered this thread."""
        if threading.get_ident() not in self._away:
            return
        with self._lock:
            del self._away[threading.get_ident()]
            if self._away:
                return
            self.refused = ""
        _log.warning("Redis is back")

    @property
    def away(self) -> bool:
        """Whether Redis did not answer some thread the last time."""
        return bool(self._away)

    def _run(self, stream: "Stream") -> None:
        try:
            while self._goes_on(stream):
                try:
                    stream.work_until_idle()
                except MemoryError:  # with no claim in hand: its work knows what to do then
                    _log.error("a stream ran out of memory outside of its work")
        except Stopping:
            pass
        except self.breaks as error:
            _log.critical("this process cannot go on (%s); a new one takes over", error)
            self.broken.set()
        except BaseException:  # noqa: BLE001 - the boundary of a thread: with one stream less a process looks healthy
            _log.exception("a stream failed; a new process takes over")
            self.broken.set()

    def _goes_on(self, stream: "Stream") -> bool:
        with self._lock:  # or a wake-up might find it awake for the last time
            if self.left_s() and not self.stop():
                return True
            self._awake.pop(stream, None)
            stream.asleep = True
            return False


class Stream:
    """One thread with a claim at a time, and with those of online work between two steps of it.

    The tokens of its claims begin with the worker's id, a "/" and its number in the process.
    """

    def __init__(self, of: Streams, number: int, progress: Progress) -> None:
        self.of = of
        self.progress = progress
        self._name = f"{of.child.worker_id}/{number}"
        self._wakeup = Wakeup(of.ledger, wake_channel(of.queue, self._name))
        # The time makes tokens unique over the children under one name.
        self._tokens = map(f"{self._name}/{time.time_ns():x}/{{}}".format, itertools.count())
        self.asleep = True
        self.works_for = ""
        """The owner of its claim, until that is done. Where one stream is kept, a claim is of one task."""
        self._own = ""
        """Token of the claim that is no online work between two steps: behind its last commit the stream may wait."""
        self._ended = ""
        """Token of the last claim that was committed whole, or given back."""
        self._wait_ms = 0

    def work_until_idle(self) -> None:
        """Claims and works until all streams of the process are idle, or a stop was asked for.

        Raises:
            ModelChanged: workers serve another model now; this process must be replaced. So must it after `breaks`.
            Stopping: Redis is away.
        """
        of = self.of
        while not of.stop():
            # Whoever is registered as waiting without a subscription would be passed over.
            self._patiently(self._wakeup.open)
            # With 0 it is registered no more, and what it gets then it does: nobody is told of work in vain.
            linger_s = min(LINGER_S, of.left_s())
            # The first claim clears the bell, and the last one. In between claims keep it believed, or a worker at work
            # would be sent one with each claim.
            rang = (self.asleep or not linger_s) and of.heard_bell()
            self.asleep = False
            taken = self._claim(of.work.claim_size(), linger_ms=int(linger_s * 1000), rang=rang)
            self._wait_ms = taken.wait_ms
            if taken.pieces:
                self._own = taken.token
                self._do(taken)
                of.stay_awake()
            elif not linger_s and not taken.wait_ms:
                return
            if self._wait_ms:
                self._wakeup.wait(self._wait_ms / 1000, of.stop)

    def serve_online(self, size: ClaimSize, *, no_lists: bool) -> bool:
        """Claims what the online lane has and does it; whether there was something. For work that can wait for it.

        `no_lists`: no pieces of several texts that alone reach the size, for work of this kind itself.
        """
        taken = self._claim(size, online_only=True, no_lists=no_lists)
        if taken.pieces:
            self._do(taken)
        return bool(taken.pieces)

    def commit(self, claim: Claim, outcomes: Sequence[Outcome], *, last: bool, spent: int = 0) -> CommitReply:
        """See `ledger.commit`. However long Redis stays away: whoever has the pieces by then, they are committed once.

        `last`: nothing is left of the claim, so the stream waits for more where there is none.

        Raises:
            Stopping: Redis is away, and a stop was asked for.
        """
        of = self.of
        lingers = last and claim.token == self._own and not of.stop()
        if last:  # now: a neighbour that is woken as soon as this is committed takes the owner's next piece
            self.works_for = ""
        linger_ms = int(LINGER_S * 1000) if lingers else 0
        operation = commit(of.queue, claim.token, outcomes, spent=spent, stream=self._name, linger_ms=linger_ms)
        began_ns = time.time_ns()
        reply = self._patiently(lambda: of.ledger.run(operation))
        stale = sum(code is CommitCode.STALE for code in reply.codes)
        if claim.trace is not None:
            told = {"embedq.pieces": len(outcomes), "embedq.pieces.stale": stale}
            claim.trace.add("commit", began_ns, told, of={outcome.piece.task_id for outcome in outcomes})
        if stale:
            _log.info("%d of %d pieces were cancelled, expired or taken over meanwhile", stale, len(outcomes))
        of.count({"stale_units": stale, **took_counts(reply.completed)})
        self._wait_ms = reply.wait_ms
        # COMMIT ends a claim of which it got every piece at once. Any other would be held until its lease ends, and
        # beside a text that is tried alone this process would do nothing as long.
        if last and not stale and len(outcomes) == len(claim.pieces):
            self._ended = claim.token
        return reply

    def give_back(self, claim: Claim, *, blame: bool = False) -> None:
        """What the claim still holds is anybody's again. `blame`: its texts may be at fault, so each is tried alone."""
        if claim.trace is not None and blame:
            claim.trace.add("lose", time.time_ns(), {}, error="worker_lost")
        self._ended = claim.token
        self.works_for = ""
        operation = give_back(self.of.queue, claim.token, blame=blame)
        with suppress(Stopping):  # it comes back when its lease ends
            self.of.ring_if(self._patiently(lambda: self.of.ledger.run(operation)))

    def close(self) -> None:
        """Ends the subscription."""
        self._wakeup.close()

    def _patiently(self, call: Callable[[], T]) -> T:
        """The result of a call that may be repeated, as soon as Redis is there. Meanwhile nothing hangs.

        Raises:
            Stopping: it is not, and a stop was asked for.
            RedisError: a script's defect, which no wait mends.
        """
        while True:
            try:
                result = call()
            except RedisUnavailable as error:
                self.of.unheard(error)
                if self.of.stop():
                    raise Stopping from None
                self.progress.step()
                time.sleep(_RETRY_S)
            else:
                self.of.heard()
                return result

    def _do(self, claim: Claim) -> None:
        of = self.of
        with about_tasks(claim.task_ids), self.progress.holding(claim.token, claim.task_ids):
            blame = False
            try:
                of.work(claim, self)
            except Stopping:
                pass
            except of.breaks:
                # A text may have broken the device, so this claim is to blame, and none around or beside it.
                blame = not of.broken.is_set()
                of.broken.set()  # before it is given back, or another stream would take it here
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the other texts must not wait for the lease's end
                _log.error("a claim of %d pieces failed with %s", len(claim.pieces), type(error).__name__)
                blame = True
            finally:
                if self._ended != claim.token:
                    self.give_back(claim, blame=blame)

    def _claim(
        self,
        size: ClaimSize,
        *,
        linger_ms: int = 0,
        rang: bool = False,
        online_only: bool = False,
        no_lists: bool = False,
    ) -> Claim:
        of = self.of
        with of.choosing(self) as passes:
            request = ClaimRequest(
                stream=self._name,
                token=next(self._tokens),
                budget=size.bulk_cost,
                online_budget=size.online_cost,
                max_pieces=MAX_PIECES,
                lease_ms=int(of.child.settings.lease_s * 1000),
                linger_ms=linger_ms,
                rang=rang,
                online_only=online_only,
                no_lists=no_lists,
                rate=size.rate,
                stamp=of.stamp,
                passes=passes,
            )
            began_ns = time.time_ns()
            # With the same token: the reply to a claim that was made may be lost.
            try:
                taken = self._patiently(lambda: of.ledger.run(claim(of.queue, request)))
            except MemoryError:
                _log.error("a claim did not fit into memory; its texts are tried alone")
                taken = Claim(request.token, (), None, more=False, wait_ms=0, bell_due=False)
                self.give_back(taken, blame=True)
            if taken.pieces:
                self.works_for = taken.pieces[0].owner
        of.ring_if(taken.bell_due)
        if taken.pieces:
            of.count({"claims": 1})
            if traced := {one.task_id: (one.task_id, one.trace, one.deaths) for one in taken.pieces if one.trace}:
                sizes = {"messaging.batch.message_count": len(taken.pieces)}
                sizes["embedq.claim.items"] = sum(piece.items for piece in taken.pieces)
                taken = dataclasses.replace(taken, trace=ClaimTrace(of.queue, traced.values(), sizes, began_ns))
        return taken

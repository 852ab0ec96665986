"""How a claim ends: it is committed, or given back. Where Redis is away, that waits until it is back."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from redis.exceptions import RedisError

from tasks.errors import RedisUnavailable
from tasks.ledger.claim import Claim
from tasks.ledger.client import Ledger, reason
from tasks.ledger.commit import CommitCode, CommitReply, commit
from tasks.ledger.give_back import give_back
from tasks.ledger.overview import took_counts
from tasks.ledger.task import Outcome
from tasks.worker.process.hangs import Progress
from tasks.worker.process.stop import Stopping
from worker_config.redis_connection import refusal
from worker_config.traces import Traces

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.2


class Claims:
    """The claims of one process in one queue, and what came of them. All its streams share this.

    Args:
        ledger: of the process, safe in several threads.
        queue: a served name, or that of the documents queue.
        worker: id of the process.
        lease_s: how long a claim lasts unless it is renewed.
        stopping: whether a stop was asked for.
        send_bell: sends a bell of a queue; never raises.
        stamp: of the model, as in `ClaimRequest`.
        breaks: what says that this process must be replaced.
        traces: of the process; None: there are none.

    Attributes:
        broken: set when the process must be replaced.
        refused: what Redis refuses some thread, although it serves others; "": nothing.
    """

    def __init__(
        self,
        ledger: Ledger,
        queue: str,
        *,
        worker: str,
        lease_s: float,
        stopping: Callable[[], bool],
        send_bell: Callable[[str], None],
        stamp: str = "",
        breaks: tuple[type[Exception], ...] = (),
        traces: Traces | None = None,
    ) -> None:
        self.ledger, self.queue, self.worker, self.lease_s = ledger, queue, worker, lease_s
        self.stamp, self.breaks, self.traces = stamp, breaks, traces
        self.broken = threading.Event()
        self.refused = ""
        self._stopping, self._send_bell = stopping, send_bell
        self._totals: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._away: set[int] = set()
        """Threads whose last call failed. One may be refused what others may: who subscribes needs other rights."""
        self._said: set[str] = set()

    def stop(self) -> bool:
        """Whether to leave the work: a stop was asked for, or the process must be replaced."""
        return self.broken.is_set() or self._stopping()

    def patiently(self, call: Callable[[], T], progress: Progress) -> T:
        """The result of a call that may be repeated, as soon as Redis is there. Meanwhile nothing hangs.

        Raises:
            Stopping: it is not, and a stop was asked for.
        """
        while True:
            try:
                result = call()
            except (RedisUnavailable, RedisError) as error:
                self.unheard(error)
                if self.stop():
                    raise Stopping from None
                progress.step()
                time.sleep(_RETRY_S)
            else:
                self.heard()
                return result

    def unheard(self, error: Exception) -> None:
        """Redis did not answer this thread: each reason is said once an outage."""
        why = reason(error)
        with self._lock:
            said = why in self._said
            self._away.add(threading.get_ident())
            self._said.add(why)
            if refusal(error.__cause__ or error):
                self.refused = why.rstrip(".")
        if not said:
            _log.warning("Redis is unavailable, this worker goes on when it is back: %s", why)

    def heard(self) -> None:
        """Redis answered this thread."""
        if threading.get_ident() not in self._away:
            return
        with self._lock:
            self._away.remove(threading.get_ident())
            if self._away:
                return
            self._said.clear()
            self.refused = ""
        _log.warning("Redis is back")

    @property
    def away(self) -> bool:
        """Whether Redis did not answer some thread the last time."""
        return bool(self._away)

    def commit(
        self,
        claim: Claim,
        outcomes: Sequence[Outcome],
        progress: Progress,
        *,
        spent: int = 0,
        stream: str = "",
        linger_ms: int = 0,
    ) -> CommitReply:
        """See `ledger.commit`. However long Redis stays away: whoever has the pieces by then, they are committed once.

        Raises:
            Stopping: as above.
        """
        operation = commit(
            self.queue, claim.token, outcomes, spent=spent, stream=stream, linger_ms=0 if self.stop() else linger_ms
        )
        began_ns = time.time_ns()
        reply = self.patiently(lambda: self.ledger.run(operation), progress)
        stale = sum(code is CommitCode.STALE for code in reply.codes)
        if claim.trace is not None:
            told = {"embedq.pieces": len(outcomes), "embedq.pieces.stale": stale}
            claim.trace.add("commit", began_ns, told, of={outcome.piece.task_id for outcome in outcomes})
        if stale:
            _log.info("%d of %d pieces were cancelled, expired or taken over meanwhile", stale, len(outcomes))
        self.count({"stale_units": stale, **took_counts(reply.completed)})
        return reply

    def give_back(self, claim: Claim, progress: Progress, *, blame: bool = False) -> None:
        """What the claim still holds is anybody's again. `blame`: its texts may be at fault, so each is tried alone."""
        if claim.trace is not None and blame:
            claim.trace.add("lose", time.time_ns(), {}, error="worker_lost")
        operation = give_back(self.queue, claim.token, blame=blame)
        with suppress(Stopping):  # it comes back when its lease ends
            self.ring_if(self.patiently(lambda: self.ledger.run(operation), progress))

    def ring_if(self, due: bool) -> None:
        """Sends a bell if the ledger has said that one is due."""
        if due:
            self._send_bell(self.queue)

    def count(self, done: Mapping[str, int]) -> None:
        """So much more is done."""
        with self._lock:
            self._totals.update(done)

    def counted(self) -> dict[str, int]:
        """What the streams have done since the process is ready, by the names of the queue's counters."""
        with self._lock:
            return {name: number for name, number in self._totals.items() if number}

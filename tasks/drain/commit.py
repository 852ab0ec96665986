"""How a claim ends: committed, given back or lost. While Redis is away, the end of a claim is owed."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, CommitOutcome, Finished, Ledger, operations

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.1


class Committer:
    """Ends claims of one queue. The streams of a process share it.

    A claim whose end Redis did not hear is given back when it is back: the end of its lease would count as a death of
    its texts.

    Args:
        ledger: an executor.
        queue: a served name, or that of the documents queue.
        patience_s: how long a commit is tried while Redis is away; not when a stop waits. Then the claim is owed.
        stop: whether to stop.
    """

    def __init__(self, ledger: Ledger, queue: str, *, patience_s: float, stop: Callable[[], bool]) -> None:
        self._ledger = ledger
        self._queue = queue
        self._patience_s = patience_s
        self._stop = stop
        self._owed: set[str] = set()

    def commit(
        self, claim: Claim, finished: Sequence[Finished], *, forward_passes: int = 0, padded_tokens: int = 0
    ) -> Sequence[CommitOutcome]:
        """One outcome per unit; none when Redis stayed away, and the claim is owed."""
        operation = operations.commit(
            self._queue, claim.token, finished, forward_passes=forward_passes, padded_tokens=padded_tokens
        )
        began_ns = time.time_ns()
        # Redis may be back before the lease ends.
        outcomes = self._patiently(lambda: self._ledger.run(operation), self._patience_s)
        if outcomes is None:
            _log.warning("Redis stayed away: %d units are given back when it is back", len(finished))
            self.owe(claim.token)
            return ()
        stale = outcomes.count(CommitOutcome.STALE)
        if claim.trace is not None:
            told = {"embedq.units": len(finished), "embedq.units.stale": stale}
            claim.trace.add("commit", began_ns, told, of={f.unit.task_id for f in finished})
        if stale:
            _log.info("%d of %d units were cancelled, expired or taken over meanwhile", stale, len(outcomes))
        return outcomes

    def give_back(self, claim: Claim) -> None:
        """The rest of the claim is anybody's again, and its attempts do not count."""
        self.owe(claim.token)
        with suppress(RedisUnavailable):
            # The reply's bell is not needed: a stream that stops leaves its slice, and LEAVE rings for ready work.
            self.release_owed()

    def lose(self, claim: Claim) -> None:
        """The rest of the claim comes back as suspects."""
        if claim.trace is not None:
            claim.trace.add("lose", time.time_ns(), {}, error="worker_lost")
        try:
            self._ledger.run(operations.lose(self._queue, claim.token))
        except RedisUnavailable:
            _log.warning("Redis is away: a claim comes back when its lease ends")

    def owe(self, token: str) -> None:
        """Redis may hold a claim of this token, and nobody works on it."""
        self._owed.add(token)

    def release_owed(self) -> bool:
        """Gives back the claims that are owed, before anything is claimed; whether to send a bell.

        Raises:
            RedisUnavailable: they are still owed.
        """
        bell_due = False
        for token in tuple(self._owed):  # another stream may be at it: a release is repeatable
            bell_due = self._ledger.run(operations.release(self._queue, token)) or bell_due
            self._owed.discard(token)
        return bell_due

    def release_when_back(self) -> bool:
        """The same as soon as Redis answers, unless a stop waits. Before the next slice: perhaps nobody begins one."""
        if not self._owed or self._stop():
            return False
        return bool(self._patiently(self.release_owed, math.inf))

    def _patiently(self, call: Callable[[], T], patience_s: float) -> T | None:
        """The result, or None when Redis stayed away for so long or a stop waits."""
        until = time.monotonic() + patience_s
        while True:
            try:
                return call()
            except RedisUnavailable:
                if self._stop() or time.monotonic() >= until:
                    return None
                time.sleep(_RETRY_S)

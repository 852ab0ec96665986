"""How a claim ends: committed, given back or lost. What Redis did not hear of is given back when it answers again."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, CommitOutcome, Finished, Ledger, operations

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.1


class Settlement:
    """Ends claims of one queue. The streams of a process share it.

    A claim of which Redis heard no end is owed: were it left to its lease, that would count as a death of its texts.

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
        outcomes = self._patiently(operation)
        if outcomes is None:
            _log.warning("Redis stayed away: %d units are given back when it is back", len(finished))
            self.owe(claim.token)
            return ()
        stale = outcomes.count(CommitOutcome.STALE)
        if stale:
            _log.info("%d of %d units were cancelled, expired or taken over meanwhile", stale, len(outcomes))
        return outcomes

    def give_back(self, claim: Claim) -> None:
        """What the claim still holds is anybody's again, and its attempts do not count."""
        self.owe(claim.token)
        with suppress(RedisUnavailable):
            # The reply's bell is not needed: whoever stops leaves its slice, and LEAVE rings for ready work.
            self.release_owed()

    def lose(self, claim: Claim) -> None:
        """What the claim still holds comes back as suspects."""
        try:
            self._ledger.run(operations.lose(self._queue, claim.token))
        except RedisUnavailable:
            _log.warning("Redis is away: a claim comes back when its lease ends")

    def owe(self, token: str) -> None:
        """Redis may hold a claim of this token, and nobody works on it."""
        self._owed.add(token)

    def release_owed(self) -> bool:
        """Gives back what is owed, before anything is claimed; whether to ring.

        Raises:
            RedisUnavailable: it is still owed.
        """
        ring = False
        for token in tuple(self._owed):  # another stream may be at it: a release is repeatable
            ring = self._ledger.run(operations.release(self._queue, token)) or ring
            self._owed.discard(token)
        return ring

    def release_when_back(self) -> bool:
        """The same as soon as Redis answers, unless a stop waits. Before the next slice: perhaps nobody begins one."""
        while self._owed and not self._stop():
            try:
                return self.release_owed()
            except RedisUnavailable:
                time.sleep(_RETRY_S)
        return False

    def _patiently(self, operation: operations.Operation[T]) -> T | None:
        """The reply, or None when Redis stayed away: it may be back before the lease ends, unless a stop waits."""
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._ledger.run(operation)
            except RedisUnavailable:
                if self._stop() or time.monotonic() >= until:
                    return None
                time.sleep(_RETRY_S)

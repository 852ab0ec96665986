"""How a claim ends: committed, given back, lost, or left to the end of its lease while Redis is away."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from tasks.errors import RedisUnavailable
from tasks.ledger import Claim, CommitOutcome, Finished, Ledger, operations

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 0.1


class Settlement:
    """Ends claims of one queue.

    Args:
        ledger: an executor.
        queue: a served name, or that of the documents queue.
        patience_s: how long a commit is tried while Redis is away; not when a stop waits.
        stop: whether to stop.
    """

    def __init__(self, ledger: Ledger, queue: str, *, patience_s: float, stop: Callable[[], bool]) -> None:
        self._ledger = ledger
        self._queue = queue
        self._patience_s = patience_s
        self._stop = stop

    def commit(
        self, claim: Claim, finished: Sequence[Finished], *, forward_passes: int = 0, padded_tokens: int = 0
    ) -> Sequence[CommitOutcome]:
        """One outcome per unit; none when Redis stayed away and the units will come back when their lease ends."""
        operation = operations.commit(
            self._queue, claim.token, finished, forward_passes=forward_passes, padded_tokens=padded_tokens
        )
        outcomes = self._patiently(operation)
        if outcomes is None:
            _log.warning("Redis stayed away: %d units come back when their lease ends", len(finished))
            return ()
        stale = outcomes.count(CommitOutcome.STALE)
        if stale:
            _log.info("%d of %d units were cancelled, expired or taken over meanwhile", stale, len(outcomes))
        return outcomes

    def give_back(self, claim: Claim, *, patient: bool = False) -> None:
        """What the claim still holds is anybody's again, and its attempts do not count.

        `patient`: tries as long as a commit while Redis is away, so that the attempts are not counted by the lease.
        """
        # The reply's bell is not needed: whoever stops leaves its slice, and LEAVE rings for ready work.
        self._try(operations.release(self._queue, claim.token), patient=patient)

    def lose(self, claim: Claim) -> None:
        """What the claim still holds comes back as suspects."""
        self._try(operations.lose(self._queue, claim.token))

    def _try(self, operation: operations.Operation[bool], *, patient: bool = False) -> None:
        if self._patiently(operation, self._patience_s if patient else 0) is None:
            _log.warning("Redis is away: a claim comes back when its lease ends")

    def _patiently(self, operation: operations.Operation[T], patience_s: float | None = None) -> T | None:
        """The reply, or None when Redis stayed away: it may be back before the lease ends, unless a stop waits."""
        until = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                return self._ledger.run(operation)
            except RedisUnavailable:
                if self._stop() or time.monotonic() >= until:
                    return None
                time.sleep(_RETRY_S)

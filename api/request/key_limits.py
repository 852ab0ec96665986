"""The limits of a caller's key, as its requests meet them. A key without limits costs nothing here."""

import time
from collections.abc import Callable

from starlette.types import Scope

from tasks.errors import RateLimited, RedisUnavailable
from tasks.ledger import AsyncLedger, KeyAdmission, KeyRoom
from tasks.ledger.operations import Taken, retry_after_of_key, take_request
from tasks.records.api_keys import Limits

_TAKEN = "embedq.taken"
_ROOM = "embedq.room"


def admission(limits: Limits) -> KeyAdmission:
    """What SUBMIT checks of them."""
    return KeyAdmission(limits.tokens_per_minute, limits.queued_tokens, limits.open_jobs)


class RequestRates:
    """Counts the requests of keys that may make so many in a second.

    The buckets are in Redis, for all processes. A process remembers until when one is empty and asks no more until
    then: whatever others take meanwhile, it cannot be filled before. So a flood costs Redis no more calls than its key
    may make requests, and as many that are refused.

    Args:
        ledger: holds the buckets.
        clock: seconds that only grow.
    """

    def __init__(self, ledger: AsyncLedger, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._clock = clock
        self._empty: dict[str, tuple[float, float]] = {}
        """By owner: the limit that was asked for, and until when its bucket is empty."""

    async def take(self, scope: Scope, owner: str, per_s: float) -> bool:
        """Counts the request of `scope`; False: the owner has made `per_s` in the last second.

        While Redis is away nothing is counted: what needs no Redis is answered.
        """
        if self._wait_s(owner, per_s) > 0:
            return False
        try:
            taken = await self._ledger.run(take_request(owner, per_s))
        except RedisUnavailable:
            return True
        scope[_TAKEN] = taken
        if not taken.wait_s:
            self._empty.pop(owner, None)
            return True
        self._empty[owner] = per_s, self._clock() + taken.wait_s
        return False

    def refusal(self, owner: str, per_s: float) -> RateLimited:
        """The error for a request that was not counted, with the time from now on."""
        after_s = retry_after_of_key(self._wait_s(owner, per_s))
        return RateLimited(
            f"The limit of your key is reached: requests_per_second is {per_s:g}. Try again in {after_s} s.",
            retry_after_s=after_s,
        )

    def _wait_s(self, owner: str, per_s: float) -> float:
        limit, until_s = self._empty.get(owner, (per_s, 0.0))
        return until_s - self._clock() if limit == per_s else 0.0  # another limit counts at once


def taken_by(scope: Scope) -> Taken | None:
    """What the request of `scope` has left of the requests; None: its key has no such limit."""
    return scope.get(_TAKEN)


def note_room(scope: Scope, room: KeyRoom | None) -> None:
    """Notes what SUBMIT has said of the key."""
    if room is not None:
        scope[_ROOM] = room


def room_of(scope: Scope) -> KeyRoom | None:
    """What the key may still bring; None: it has no such limit, or nothing was submitted."""
    return scope.get(_ROOM)

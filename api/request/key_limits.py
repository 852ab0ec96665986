"""The limits of a caller's key, as its requests meet them. A key without limits costs nothing here."""

import contextlib

from starlette.types import Scope

from tasks.errors import RateLimited, RedisUnavailable
from tasks.ledger import AsyncLedger, KeyAdmission, KeyRoom
from tasks.ledger.operations import Taken, retry_after_of_key, take_request
from tasks.records.keys import KeyLimits

_TAKEN = "embedq.taken"
_ROOM = "embedq.room"


def admission(limits: KeyLimits) -> KeyAdmission:
    """What SUBMIT checks of them."""
    return KeyAdmission(limits.tokens_per_minute, limits.queued_tokens, limits.open_jobs)


async def take(ledger: AsyncLedger, scope: Scope, owner: str, per_s: float) -> None:
    """Counts the request of `scope`. While Redis is away nothing is counted: what needs no Redis is answered.

    Raises:
        RateLimited: the owner has made `per_s` requests in the last second.
    """
    with contextlib.suppress(RedisUnavailable):
        taken = await ledger.run(take_request(owner, per_s))
        scope[_TAKEN] = taken
        if taken.wait_s:
            after_s = retry_after_of_key(taken.wait_s)
            raise RateLimited(
                f"The limit of your key is reached: requests_per_second is {per_s:g}. Try again in {after_s} s.",
                retry_after_s=after_s,
            )


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

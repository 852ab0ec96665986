"""What others own looks to a caller as if it did not exist: two answers would say which ids there are."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from tasks.errors import EmbedqError, Overloaded
from tasks.ledger.client import AsyncLedger
from tasks.records.api_keys import Key
from tasks.records.jobs import Job
from tasks.records.moves import Move
from tasks.records.store import ANY_ROOM, Room
from worker_config.settings import Settings


class Owned(Protocol):
    """Something with an owner."""

    @property
    def owner(self) -> str:
        """The id of its owner."""


T = TypeVar("T", bound=Owned)


def own(key: Key, thing: T | None, missing: EmbedqError) -> T:
    """The thing, if it is the caller's; raises `missing` if it is not, or if there is none."""
    if thing is None or thing.owner != key.owner:
        raise missing
    return thing


def quota_of(key: Key, settings: Settings) -> int:
    """Bytes that the caller may store."""
    own_bytes = key.limits.stored_bytes
    return settings.file_quota_bytes if own_bytes is None else own_bytes


def room_of(key: Key, settings: Settings, **limits: int | None) -> Room:
    """What a new record of the caller may take. `limits`: by what counts in its account; None: there is none."""
    quota = {"stored": quota_of(key, settings)}
    known = {name: most for name, most in (quota | limits).items() if most is not None}
    return Room(known, max_memory_percent=settings.max_redis_memory_percent)


J = TypeVar("J", bound=Job[Any])
_TRIES = 20
"""A job that is driven moves a few times in a second."""


async def change_job(
    ledger: AsyncLedger, read: Callable[[], Awaitable[J]], change: Callable[[J], Move | None], room: Room = ANY_ROOM
) -> J:
    """Makes a move of a job as it is now, whoever moves it beside this call; the job as it was before.

    Args:
        ledger: holds it.
        read: the job; raises where the caller has none.
        change: the move; None: there is nothing to do. It may raise.
        room: of it only the limits of the account.

    Raises:
        Forbidden, TooMany: as `store.create`.
        Overloaded: others were faster each time.
        RedisUnavailable: no answer.
    """
    for _ in range(_TRIES):
        job = await read()
        move = change(job)
        if move is None:
            return job
        if await ledger.run(move.operation(room)) is not None:
            return job
    raise Overloaded("The job moves too fast to be changed; try again.", retry_after_s=1)

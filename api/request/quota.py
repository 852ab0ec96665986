"""The quota of a caller, and the room that an upload reserves while it comes in."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tasks.errors import EmbedqError, RedisUnavailable
from tasks.ledger import AsyncLedger
from tasks.records.api_keys import Limits
from tasks.records.files import Quota, release_file, reserve_file
from worker_config.settings import Settings

RENEW_BYTES = 2**20
"""The upload is counted anew after each such piece, so it may exceed the quota by as much."""
RESERVED_MS = 600_000
"""An upload whose process died counts for so long after its last bytes."""


def quota(settings: Settings, limits: Limits) -> Quota:
    """Of the caller whose key has these limits."""
    own = limits.stored_bytes
    return Quota(settings.file_quota_bytes if own is None else own, settings.file_quota_number)


class Room:
    """The room of one upload. Use `room`."""

    def __init__(self, ledger: AsyncLedger, owner: str, file_id: str, allowed: Quota, announced_bytes: int) -> None:
        self._ledger = ledger
        self._owner = owner
        self._file_id = file_id
        self._quota = allowed
        self._announced_bytes = announced_bytes
        self._again_at = RENEW_BYTES

    async def reserve(self, received_bytes: int = 0) -> None:
        """Reserves what was announced or what has come, whichever is more.

        Raises:
            QuotaExceeded: there is no such room.
            RedisUnavailable, StorageFull: it cannot be said.
        """
        size_bytes = max(self._announced_bytes, received_bytes)
        await self._ledger.run(reserve_file(self._owner, self._file_id, size_bytes, self._quota, RESERVED_MS))

    async def received(self, received_bytes: int) -> None:
        """So many bytes have come. While Redis is away nothing is checked: the record is, when all have come.

        Raises:
            QuotaExceeded: that is more than there is room for.
        """
        if received_bytes >= self._again_at:
            self._again_at = received_bytes + RENEW_BYTES
            with contextlib.suppress(RedisUnavailable):
                await self.reserve(received_bytes)


@asynccontextmanager
async def room(
    ledger: AsyncLedger, owner: str, file_id: str, allowed: Quota, announced_bytes: int
) -> AsyncIterator[Room]:
    """Room for an upload, until its record is made or the block raises. Raises as `Room.reserve` does."""
    taken = Room(ledger, owner, file_id, allowed, announced_bytes)
    await taken.reserve()
    try:
        yield taken
    except BaseException:
        with contextlib.suppress(EmbedqError):  # it ends by itself
            await ledger.run(release_file(owner, file_id))
        raise

"""Everything that one owner has is removed, a few seconds at a time.

An owner's id is nobody else's, ever: whatever is late reaches nobody.
"""

import asyncio
import time

from api.async_storage import AsyncStorage
from api.schemas.keys import Purged
from tasks.ledger import AsyncLedger
from tasks.records.creation import RecordKind
from tasks.records.files import delete_file
from tasks.records.purge import (
    PurgedFile,
    PurgedRecord,
    Sweep,
    close_account,
    remove_datasets,
    remove_folder,
    remove_record,
    sweep_owner,
)

_AT_ONCE = 4
"""Objects that are removed at the same time: the threads of the storage are for all callers."""
_PAUSE_S = 0.05


class Purge:
    """Removes what one owner has. Several at the same time, and one after one that died, do each other no harm.

    Attributes:
        done: nothing is left.
        deleted: by this call.
    """

    def __init__(self, ledger: AsyncLedger, storage: AsyncStorage, owner: str) -> None:
        self.done = False
        self.deleted = Purged()
        self._ledger = ledger
        self._storage = storage
        self._owner = owner
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._until_s = 0.0

    async def run(self, call_s: float, *, not_before_s: float) -> None:
        """Works for about `call_s` seconds.

        `not_before_s`: of the same clock as `time.monotonic`; the owner may still make something until then.

        Raises:
            RedisUnavailable, StorageUnavailable: a later call goes on.
        """
        self._until_s = time.monotonic() + call_s
        while True:
            settled = time.monotonic() >= not_before_s
            found = await self._ledger.run(sweep_owner(self._owner))
            self.deleted.tasks += found.tasks
            await self._remove(found)
            if found.over and found.clean and settled:
                await self._close()
                self.done = True
                return
            if self._late:
                return
            if found.over:  # what is left waits for workers
                await asyncio.sleep(_PAUSE_S)

    @property
    def _late(self) -> bool:
        return time.monotonic() > self._until_s

    async def _remove(self, found: Sweep) -> None:
        # What is left here because it is late, its record is met again by the next round.
        removals = [self._remove_file(file) for file in found.files]
        removals += [self._remove_record(record) for record in found.records if not record.busy]
        outcomes = await asyncio.gather(*removals, return_exceptions=True)
        for error in (outcome for outcome in outcomes if outcome is not None):
            raise error

    async def _remove_file(self, file: PurgedFile) -> None:
        async with self._turn:
            if self._late:
                return
            await self._storage.delete(file.stored)
            if await self._ledger.run(delete_file(file.id)) is not None:
                self.deleted.files += 1
                self.deleted.bytes += file.size_bytes

    async def _remove_record(self, record: PurgedRecord) -> None:
        async with self._turn:
            if self._late:
                return
            size_bytes = await self._storage.run(remove_folder, record.folder)
            self.deleted.bytes += size_bytes
            if await self._ledger.run(remove_record(record)):
                if record.kind is RecordKind.BATCH:
                    self.deleted.batches += 1
                else:
                    self.deleted.ingestions += 1

    async def _close(self) -> None:
        number, size_bytes = await self._storage.run(remove_datasets, self._owner)
        self.deleted.datasets += number
        self.deleted.bytes += size_bytes
        await self._ledger.run(close_account(self._owner))

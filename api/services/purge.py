"""Everything that one owner has is removed, a few seconds at a time.

An owner's id is nobody else's, ever: whatever is late reaches nobody.
"""

import asyncio
import time
from functools import partial

from api.async_storage import AsyncStorage
from api.schemas.keys import Purged
from tasks.ledger.client import AsyncLedger
from tasks.records.creation import RecordKind
from tasks.records.files import delete_file
from tasks.records.purge import (
    PurgedFile,
    PurgedRecord,
    close_account,
    remove_datasets,
    remove_folder,
    remove_record,
    sweep_owner,
)

_PAUSE_S = 0.05


async def purge(
    ledger: AsyncLedger, storage: AsyncStorage, owner: str, call_s: float, *, not_before_s: float
) -> tuple[bool, Purged]:
    """Removes what one owner has, for about `call_s` seconds. Several, or one after one that died, do no harm.

    `not_before_s`: of the same clock as `time.monotonic`; the owner may still make something until then.

    Returns:
        Whether nothing is left, and what this call has deleted.

    Raises:
        RedisUnavailable, StorageUnavailable: a later call goes on.
    """
    until_s, deleted = time.monotonic() + call_s, Purged()
    while True:
        settled = time.monotonic() >= not_before_s
        found = await ledger.run(sweep_owner(owner))
        deleted.tasks += found.tasks
        removals = [partial(_remove_file, ledger, storage, file, deleted) for file in found.files]
        removals += [partial(_remove_record, ledger, storage, one, deleted) for one in found.records if not one.busy]
        for remove in removals:
            if time.monotonic() > until_s:
                return False, deleted  # the next round meets what is left
            await remove()
        if found.over and found.clean and settled:
            number, size_bytes = await storage.run(remove_datasets, owner)
            deleted.datasets += number
            deleted.bytes += size_bytes
            await ledger.run(close_account(owner))
            return True, deleted
        if time.monotonic() > until_s:
            return False, deleted
        if found.over:  # what is left waits for workers
            await asyncio.sleep(_PAUSE_S)


async def _remove_file(ledger: AsyncLedger, storage: AsyncStorage, file: PurgedFile, deleted: Purged) -> None:
    await storage.delete(file.stored)
    if await ledger.run(delete_file(file.id)) is not None:
        deleted.files += 1
        deleted.bytes += file.size_bytes


async def _remove_record(ledger: AsyncLedger, storage: AsyncStorage, record: PurgedRecord, deleted: Purged) -> None:
    deleted.bytes += await storage.run(remove_folder, record.folder)
    if await ledger.run(remove_record(record)):
        if record.kind is RecordKind.BATCH:
            deleted.batches += 1
        else:
            deleted.ingestions += 1

"""`POST /v1/keys/{name}/purge`: everything that a key owns is removed, a few seconds of work for each call."""

import asyncio
import time
from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer
from api.answer.json_response import NO_STORE, json_response
from api.async_storage import AsyncStorage
from api.families.route import MANAGING, Family
from api.parts import Services
from tasks import errors
from tasks.errors import KeyInUse, KeyUnknown
from tasks.ledger import ANONYMOUS, AsyncLedger
from tasks.records.api_keys import Key
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
from worker_config.forms import is_key_name

_CALL_S = 2.0
_REVOKED_EVERYWHERE_S = 1.5
"""After it every process has refused the key for a while, so that nothing of its owner comes any more."""
_AT_ONCE = 4
"""Objects that are removed at the same time: the threads of the storage are for all callers."""
_PAUSE_S = 0.05


router = Family("keys")


class DeletedThings(BaseModel):
    """How many of each kind this call has removed. `bytes`: of objects in the storage."""

    tasks: int
    files: int
    batches: int
    ingestions: int
    datasets: int
    bytes: int


class PurgeResult(BaseModel):
    """What a call has done."""

    object: Literal["purge"]
    name: str
    done: bool = Field(description="false: something is left; call again.")
    deleted: DeletedThings


class Purge:
    """Removes what one owner has. Several at the same time, and one after one that died, do each other no harm."""

    def __init__(self, ledger: AsyncLedger, storage: AsyncStorage, owner: str) -> None:
        self.deleted = DeletedThings(tasks=0, files=0, batches=0, ingestions=0, datasets=0, bytes=0)
        self._ledger = ledger
        self._storage = storage
        self._owner = owner
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._until_s = 0.0

    async def run(self, call_s: float, *, not_before_s: float = 0.0) -> bool:
        """Works for about `call_s` seconds; whether nothing is left.

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
                return True
            if self._late:
                return False
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
            size_bytes = await self._storage.run(remove_folder, await self._storage.open(), record.folder)
            self.deleted.bytes += size_bytes
            if await self._ledger.run(remove_record(record)):
                if record.kind is RecordKind.BATCH:
                    self.deleted.batches += 1
                else:
                    self.deleted.ingestions += 1

    async def _close(self) -> None:
        number, size_bytes = await self._storage.run(remove_datasets, await self._storage.open(), self._owner)
        self.deleted.datasets += number
        self.deleted.bytes += size_bytes
        await self._ledger.run(close_account(self._owner))


@router.describe(
    "POST",
    "/v1/keys/{name}/purge",
    Answer(200, PurgeResult),
    scopes=MANAGING,
    errors=(errors.KeyUnknown, errors.KeyInUse, errors.StorageUnavailable, errors.NotReplicated),
)
async def purge_key(request: Request, name: str) -> Response:
    """Deletes what a revoked key owns, everywhere, for two seconds: call again until `done`."""
    services = Services.from_request(request)
    not_before_s = time.monotonic()
    record = await _purgeable(services, name)
    if record is not None and record.revoked is not None:
        not_before_s += max(0.0, record.revoked + _REVOKED_EVERYWHERE_S - services.keys.now_s)
    purge = Purge(services.ledger, services.storage, name)
    done = await purge.run(_CALL_S, not_before_s=not_before_s)
    if done and record is not None:
        await services.ledger_keys.change(name, Key.purge)
    deleted = purge.deleted.model_dump()
    return json_response({"object": "purge", "name": name, "done": done, "deleted": deleted}, NO_STORE)


async def _purgeable(services: Services, name: str) -> Key | None:
    """The record of the key; None: what it owns was made without a key, or with one of an earlier EMBEDQ_API_KEYS."""
    if name in services.keys.environment:
        raise KeyInUse(f"The key {name} is still valid, so more may come. Take it out of EMBEDQ_API_KEYS first.")
    try:
        record = await services.ledger_keys.read(name)
    except KeyUnknown:
        if name == ANONYMOUS or is_key_name(name):
            return None
        raise
    if record.revoked is None:
        raise KeyInUse(f"The key {name} is still valid, so more may come. Revoke it first.")
    return record

"""A key is made, used, revoked, purged, deleted and made again, and whoever does it dies before or after any call."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from api.auth import Keys
from api.schemas.keys import NewKey
from api.services.keys import KeyService
from tasks.errors import Conflict, NotFound, Unauthenticated
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.records import store
from tasks.records.api_keys import Key
from tasks.records.files import put_file, read_file
from tasks.records.jobs import clock
from tasks.records.store import ALL, left_of
from tasks.storage.purged_owners import OwnerSweep
from tasks.storage.storage import Storage
from tests.made_files import made_file
from tests.thorough import some
from worker_config.settings import load_settings


def purged_owners(storage: Storage, ledger: Ledger) -> None:
    OwnerSweep(storage, lambda: None, ledger).sweep(ledger.run(clock()))


class Died(BaseException):
    """A process ends: nothing that it would have done after it is done."""


class Mortal:
    """Counts the calls of all processes, and ends the process with one of them."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.calls = 0
        self._at = at
        self._after = after

    def due(self, *, after: bool) -> None:
        self.calls += not after
        if self.calls == self._at and after is self._after:
            self._at = 0
            raise Died

    def run(self, ledger: Ledger) -> Callable[[Any], Any]:
        """`Ledger.run` of a process that may die."""

        def run(operation: Any) -> Any:
            self.due(after=False)
            reply = Ledger.run(ledger, operation)
            self.due(after=True)
            return reply

        return run

    def run_async(self, ledger: AsyncLedger) -> Callable[[Any], Any]:
        """The same of `AsyncLedger.run`."""

        async def run(operation: Any) -> Any:
            self.due(after=False)
            reply = await AsyncLedger.run(ledger, operation)
            self.due(after=True)
            return reply

        return run


class Life:
    """The steps, each by a process of its own."""

    def __init__(self, redis_url: str, storage: Storage, mortal: Mortal) -> None:
        self._url, self._storage, self._mortal = redis_url, storage, mortal

    async def go(self) -> list[str]:
        """Both owners, one after the other."""
        owners = []
        for last in (False, True):
            await self.step(lambda keys: keys.create(NewKey(name="bob")), there=(Conflict,))
            owners.append((await self.step(lambda keys: keys.read("bob"))).owner)
            if last:
                break
            await self.step(lambda _: asyncio.to_thread(self.use, owners[0]))
            await self.step(lambda keys: keys.revoke("bob"))
            await self.step(lambda keys: keys.purge("bob"))
            await self.step(lambda _: asyncio.to_thread(self.sweep))
            await self.step(lambda keys: keys.delete("bob"), there=(NotFound,))
        return owners

    async def step(self, what: Callable[[KeyService], Any], *, there: tuple[type[Exception], ...] = ()) -> Any:
        """Repeats it until a process lives to its end, or finds that it is done; what it came to."""
        for _ in range(3):
            with suppress(Died, *there):
                return await self.keys(what)
        return None

    async def keys(self, what: Callable[[KeyService], Any]) -> Any:
        ledger = AsyncLedger.connect(self._url)
        mortal: Any = ledger
        mortal.run = self._mortal.run_async(ledger)
        try:
            return await what(KeyService(Keys(load_settings(), ledger), ledger))
        finally:
            await ledger.close()

    def use(self, owner: str) -> None:
        """Stores a file, as a request does: its bytes first."""
        ledger, file = self.worker(), made_file(1, owner=owner)
        self._storage.write(file.stored, b"x")
        ledger.run(put_file(file))

    def sweep(self) -> None:
        purged_owners(self._storage, self.worker())

    def worker(self) -> Ledger:
        ledger = Ledger.connect(self._url)
        mortal: Any = ledger
        mortal.run = self._mortal.run(ledger)
        return ledger


async def lived(redis_url: str, storage: Storage, at: int, *, after: bool) -> int:
    """How many calls a life took that died once."""
    mortal = Mortal(at, after=after)
    before, now = await Life(redis_url, storage, mortal).go()
    assert before != now
    ledger = Ledger.connect(redis_url)
    for _ in range(3):
        purged_owners(storage, ledger)
    assert not ledger.run(left_of(before))
    assert not ledger.run(left_of(now))
    [listed] = ledger.run(store.listed(Key, ALL)).records
    assert listed.record is not None
    assert (listed.record.owner, listed.record.revoked) == (now, None)
    late = made_file(1, owner=before)
    with pytest.raises(Unauthenticated):
        ledger.run(put_file(late))  # what waited somewhere all the time
    assert ledger.run(read_file(late.id)) is None
    assert ledger.run(put_file(made_file(1, owner=now)))
    ledger.close()
    return mortal.calls


@pytest.mark.parametrize(("after", "every"), some([(True, 4), (True, 1), (False, 1)], (True, 4)))
async def test_a_key_has_one_life_whoever_dies(
    redis_client: redis.Redis, redis_url: str, tmp_path: Path, *, after: bool, every: int
) -> None:
    storage = Storage.open(str(tmp_path / "storage"))
    number = await lived(redis_url, storage, 0, after=after)
    assert number >= 20
    for at in range(1, number + 1, every):
        redis_client.flushdb()
        await lived(redis_url, storage, at, after=after)
    redis_client.flushdb()

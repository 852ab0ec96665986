"""The storage as the web tier uses it: opened when it is first needed, every call in a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import ParamSpec, TypeVar

from tasks.errors import StorageUnavailable
from tasks.ledger import AsyncLedger
from tasks.records.storage_identity import NOT_OURS, give_first_id, id_of, new_id, redis_id
from tasks.storage.storage import Storage, Writer

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_THREADS = 16
"""Calls that wait for the storage at the same time; further ones wait for a thread."""


class AsyncStorage:
    """A `Storage` that never blocks the event loop. All methods raise `StorageUnavailable`; none remembers it."""

    def __init__(self, url: str, ledger: AsyncLedger) -> None:
        self._url = url
        self._ledger = ledger
        self._opened: Storage | None = None
        self._identified = False
        # Not asyncio's own threads: a disk that hangs would take those along that read large requests.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage")

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls what reads or writes the storage, in a thread."""
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def open(self) -> Storage:
        """The storage itself."""
        if self._opened is None:
            self._opened = await self.run(Storage.open, self._url)
        return self._opened

    async def open_to_write(self) -> Storage:
        """The storage, which has an id from now on: that of Redis, if it was empty. Raises `RedisUnavailable` too.

        What is written before that would be garbage to the sweep of any other Redis (`tasks.records.storage_identity`).
        """
        storage = await self.open()
        if not self._identified:
            own_id = await self._ledger.run(redis_id(new_id()))
            if await self.run(id_of, storage) is None:
                await self.run(give_first_id, storage, own_id)
            stored_id = await self.run(id_of, storage)
            if stored_id != own_id:
                _log.warning(NOT_OURS, stored_id)
            self._identified = True
        return storage

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Writer]:
        """As `Storage.writing`. The writer itself is synchronous: use it in threads, one at a time."""
        whole = (await self.open_to_write()).writing(name)
        writer = await self.run(whole.__enter__)
        try:
            yield writer
        except BaseException as error:
            await self.run(whole.__exit__, type(error), error, error.__traceback__)
            raise
        await self.run(whole.__exit__, None, None, None)

    async def chunks(self, name: str, first: int, size: int) -> AsyncIterator[bytes]:
        """As `Storage.chunks`; but the first one has been read when this returns, so that an error comes at once."""
        pieces = (await self.open()).chunks(name, first, size)
        head = await self.run(next, pieces, b"")

        async def all_of_them() -> AsyncIterator[bytes]:
            piece = head
            while piece:
                yield piece
                piece = await self.run(next, pieces, b"")

        return all_of_them()

    async def delete(self, name: str) -> None:
        """As `Storage.delete`."""
        await self.run((await self.open()).delete, name)

    async def discard(self, name: str) -> None:
        """Deletes what no record leads to. What cannot be deleted now is left to the sweep."""
        try:
            await self.delete(name)
        except StorageUnavailable:
            _log.warning("%s could not be deleted; the sweep will", name)

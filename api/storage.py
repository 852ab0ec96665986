"""The storage as the web tier uses it: opened when it is first needed, every call in a thread."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tasks.ledger.storage import Storage, Writer


class AsyncStorage:
    """A `Storage` that never blocks the event loop. All methods raise `StorageUnavailable`; none remembers it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: Storage | None = None

    async def open(self) -> Storage:
        """The storage itself."""
        if self._opened is None:
            self._opened = await asyncio.to_thread(Storage.open, self._url)
        return self._opened

    @asynccontextmanager
    async def writing(self, name: str) -> AsyncIterator[Writer]:
        """As `Storage.writing`. The writer itself is synchronous: use it in threads, one at a time."""
        whole = (await self.open()).writing(name)
        writer = await asyncio.to_thread(whole.__enter__)
        try:
            yield writer
        except BaseException as error:
            await asyncio.to_thread(whole.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(whole.__exit__, None, None, None)

    async def chunks(self, name: str, first: int, size: int) -> AsyncIterator[bytes]:
        """As `Storage.chunks`; but the first one has been read when this returns, so that an error comes at once."""
        pieces = (await self.open()).chunks(name, first, size)
        head = await asyncio.to_thread(next, pieces, b"")

        async def all_of_them() -> AsyncIterator[bytes]:
            piece = head
            while piece:
                yield piece
                piece = await asyncio.to_thread(next, pieces, b"")

        return all_of_them()

    async def delete(self, name: str) -> None:
        """As `Storage.delete`."""
        await asyncio.to_thread((await self.open()).delete, name)

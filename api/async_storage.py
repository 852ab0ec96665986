"""The storage as the web tier uses it: opened when it is first needed, every call in a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeAlias, TypeVar

from tasks.errors import EmbedqError, StorageUnavailable
from tasks.ledger.scripts import Operation
from tasks.records.storage_identity import open_proved
from tasks.storage.storage import CHUNK_BYTES, Storage

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_THREADS = 16
"""Calls that wait for the storage at the same time; further ones wait for a thread."""
_LOOK_S = 1.0
"""So long a probe waits for the storage."""

Ask: TypeAlias = Callable[[Operation[str]], Coroutine[Any, Any, str]]


class AsyncStorage:
    """A `Storage` that never blocks the event loop. All methods raise `StorageUnavailable`; none remembers it.

    `ask` runs an operation of the ledger.
    """

    def __init__(self, url: str, ask: Ask) -> None:
        self._url = url
        self._ask = ask
        self._opened: Storage | None = None
        self._looking: asyncio.Task[str] | None = None
        # Not asyncio's own threads: a disk that hangs would take those along that read large requests.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="storage")

    async def run(self, function: Callable[Concatenate[Storage, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a function makes of the storage, in a thread. Raises as `open`, too."""
        return await self._in_thread(partial(function, await self.open(), *args, **kwargs))

    async def open(self) -> Storage:
        """The storage, once it is proved to be the one that Redis knows. Raises `RedisUnavailable` too."""
        if self._opened is None:
            loop = asyncio.get_running_loop()

            def ask(operation: Operation[str]) -> str:
                return asyncio.run_coroutine_threadsafe(self._ask(operation), loop).result()

            self._opened = await self._in_thread(partial(open_proved, self._url, ask))
        return self._opened

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def trouble(self) -> str:
        """What keeps this process from its storage, in a sentence; "" for nothing, or while nobody can say."""
        looking = self._looking
        if looking is None or looking.done():
            looking = self._looking = asyncio.create_task(self._look(), name="storage")
        # Not the attribute: another call may begin the next look meanwhile.
        done, _ = await asyncio.wait({looking}, timeout=_LOOK_S)
        return looking.result() if done else "The storage (EMBEDQ_STORAGE_URL) does not answer."

    async def _look(self) -> str:
        try:
            await self.run(lambda storage: storage.require())
        except StorageUnavailable as error:
            return error.detail
        except EmbedqError:  # of Redis, which is another matter
            return ""
        return ""

    async def store(self, name: str, file: BinaryIO) -> None:
        """Stores what is in a file, from its place on, as `Storage.writing`."""

        def copy(storage: Storage) -> None:
            with storage.writing(name) as writer:
                for piece in iter(lambda: file.read(CHUNK_BYTES), b""):
                    writer.write(piece)

        await self.run(copy)

    async def chunks(self, name: str, first: int, size: int) -> AsyncIterator[bytes]:
        """As `Storage.chunks`; but the first one has been read when this returns, so that an error comes at once."""
        pieces = (await self.open()).chunks(name, first, size)
        following = partial(next, pieces, b"")
        head = await self._in_thread(following)

        async def all_of_them() -> AsyncIterator[bytes]:
            piece = head
            while piece:
                yield piece
                piece = await self._in_thread(following)

        return all_of_them()

    async def delete(self, name: str) -> None:
        """As `Storage.delete`."""
        await self.run(lambda storage: storage.delete(name))

    async def discard(self, name: str) -> None:
        """Deletes what no record leads to. What cannot be deleted now stays, and is listed for a person."""
        try:
            await self.delete(name)
        except StorageUnavailable:
            _log.warning("%s could not be deleted; `embedq storage unknown` lists it", name)

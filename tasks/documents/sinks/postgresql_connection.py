"""A connection to PostgreSQL for synchronous callers: its own event loop, its errors in the words of this project."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
import numpy as np
import numpy.typing as npt

from tasks.documents.sinks.postgresql_errors import opening, translated

T = TypeVar("T")

CONNECT_S = 5.0
COMMAND_S = 120.0
"""Of one command. Whoever uses a connection keeps each of them small: one that lasts longer is repeated for ever."""
_PROGRESS_S = 0.5
_CLOSE_S = 2.0


class Connection:
    """One connection, opened when it is needed, and anew after it broke. For one thread at a time.

    Args:
        name: of the sink, for messages.
        url: `postgresql://…`; may hold a password and is never shown.
    """

    def __init__(self, name: str, url: str) -> None:
        self._name = name
        self._url = url
        self._loop: asyncio.Runner | None = None
        self._connection: Any = None

    def run(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None] = lambda: None) -> T:
        """The result of `work(connection)` in one transaction; `progress` is called meanwhile and may end it.

        Raises:
            SinkUnavailable: the server is down or full. The transaction had no effect, or it is not known to have.
            SinkRefused: the server will never do it, or its URL is wrong.
        """
        if self._loop is None:
            self._loop = asyncio.Runner()
        with translated(self._name):
            return self._loop.run(self._watched(work, progress))

    def close(self) -> None:
        """Closes the connection."""
        if self._loop is None:
            return
        with suppress(Exception):  # whatever is wrong with it, it is not needed any more
            self._loop.run(self._leave())
        self._loop.close()
        self._loop = None

    async def _watched(self, work: Callable[[Any], Awaitable[T]], progress: Callable[[], None]) -> T:
        task = asyncio.ensure_future(self._transaction(work))
        try:
            while not (await asyncio.wait({task}, timeout=_PROGRESS_S))[0]:
                progress()
            return task.result()
        except BaseException:
            task.cancel()
            await asyncio.wait({task}, timeout=_CLOSE_S)
            await self._leave()  # whatever state it is in, the next one is new
            raise

    async def _transaction(self, work: Callable[[Any], Awaitable[T]]) -> T:
        if self._connection is None or self._connection.is_closed():
            with opening(self._name, self._url):
                # Poolers between here and the server mix up prepared statements.
                self._connection = await asyncpg.connect(
                    self._url, timeout=CONNECT_S, command_timeout=COMMAND_S, statement_cache_size=0
                )
        async with self._connection.transaction():
            return await work(self._connection)

    async def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def know_vectors(connection: Any) -> None:
    """Makes the connection send vectors as they are in memory. The extension must be there."""
    schema = await connection.fetchval(
        "SELECT nspname FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace WHERE typname = 'vector'"
    )
    await connection.set_type_codec("vector", schema=schema, encoder=_packed, decoder=_unpacked, format="binary")


def _packed(vector: npt.NDArray[np.float32]) -> bytes:
    # pgvector's own binary form: number of dimensions, zero, then floats, all big-endian.
    return struct.pack(">HH", len(vector), 0) + vector.astype(">f4").tobytes()


def _unpacked(data: bytes) -> npt.NDArray[np.float32]:
    return np.frombuffer(data, ">f4", offset=4).astype(np.float32)

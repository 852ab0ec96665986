"""A connection to PostgreSQL for synchronous callers: its own event loop, its errors in the words of this project."""

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import asyncpg
import numpy as np
import numpy.typing as npt

from tasks.errors import SinkRefused, SinkUnavailable

T = TypeVar("T")

CONNECT_S = 5.0
COMMAND_S = 120.0
"""Of one command, such as the copy of a load, and of waiting for another writer."""
_PROGRESS_S = 0.5
_CLOSE_S = 2.0

# Beginnings of SQLSTATE: what passes by itself or by what an operator does to the server, not to this job.
_PASSING = (
    "08",  # connection
    "25006",  # a standby that has not taken over yet
    "40",  # deadlock, serialization
    "53",  # disk full, out of memory, too many connections
    "55P03",  # the lock was not to be had
    "57",  # shut down, restarted, cancelled
    "58030",  # input or output error
)
_REASONS = {
    "28": "refuses the user or the password",
    "3D": "has no such database",
    "3F": "has no such schema",
    "42501": "does not allow its user to do this; grant CREATE on the schema, or make its user the tables' owner",
}


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
            SinkRefused: the server will never do it.
        """
        if self._loop is None:
            self._loop = asyncio.Runner()
        with self._translated():
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

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.PostgresError as error:
            state = str(getattr(error, "sqlstate", None) or "")
            if state.startswith(_PASSING):
                raise self._unavailable(f"reports {type(error).__name__} ({state})") from error
            reason = next((text for code, text in _REASONS.items() if state.startswith(code)), None)
            # Never the server's own text: it may quote values of a row.
            what = reason or f"refuses with {type(error).__name__} ({state})"
            raise SinkRefused(f"The database of sink {self._name!r} {what}.", param="sink.name") from None
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError, ssl.SSLError) as error:
            raise self._unavailable("does not answer") from error

    def _unavailable(self, what: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"The database of sink {self._name!r} {what}. Nothing of this load is visible; it is tried again.",
            retry_after_s=10,
        )


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

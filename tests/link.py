"""A TCP link that is slow, is cut, goes silent, or leads somewhere else from now on.

Tests and fault trials put it in front of Redis or of a storage. The last case is what a virtual address does.
"""

import asyncio
import contextlib
import ssl
import threading
from dataclasses import dataclass
from typing import Self

_STEP_BYTES = 32 * 2**10


@dataclass(slots=True)
class _Connection:
    ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    silent: bool = False

    def abort(self) -> None:
        for end in self.ends:
            end.transport.abort()


class Link:
    """Forwards connections of a free loopback port in a thread of its own. A context manager.

    Args:
        target: port that new connections lead to; those that stand stay where they are.
        step_s: pause after each 32 KiB, or less where less was waiting.
        tls: how the port speaks TLS, which ends here; None: it does not.

    Attributes:
        step_s: as above; a change counts from the next step on.
    """

    def __init__(self, target: int, *, step_s: float = 0, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.port = 0
        self.step_s, self._tls = step_s, tls
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="link")
        self._stop = asyncio.Event()
        self._connections: list[_Connection] = []

    @property
    def url(self) -> str:
        """For `EMBEDQ_REDIS_URL`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def cut(self) -> None:
        """Every connection that stands is closed on both sides, whatever is on its way. New ones are forwarded."""
        self._loop.call_soon_threadsafe(self._cut)

    def silence(self) -> None:
        """Connections that stand become half-open: nothing is forwarded on them, and neither side hears of it.

        New ones are forwarded.
        """
        for connection in list(self._connections):
            connection.silent = True

    def _cut(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        # Not by cancelling: streams of Python 3.11 log a traceback for a connection whose task was cancelled.
        self._cut()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection((writer, back))
        self._connections.append(connection)
        if self._stop.is_set():
            connection.abort()
        pumps = (self._pump(reader, back, connection), self._pump(there, writer, connection))
        await asyncio.gather(*pumps, return_exceptions=True)
        if not connection.silent and connection in self._connections:
            self._connections.remove(connection)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_STEP_BYTES):
                if connection.silent:
                    continue
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(self.step_s)
        if not connection.silent:  # neither side may hear of its end before the next cut
            writer.transport.abort()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

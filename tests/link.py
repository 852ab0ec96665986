"""A TCP link that is slow, loses a reply, is cut, goes silent, or leads somewhere else from now on.

Tests and fault trials put it in front of Redis or of a storage. The last case is what a virtual address does.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_STEP_BYTES = 32 * 2**10


class Link:
    """Forwards connections of a free loopback port in a thread of its own. A context manager.

    Args:
        target: port that new connections lead to; those that stand stay where they are.
        step_s: pause after each 32 KiB, or less where less was waiting.
        tls: how the port speaks TLS, which ends here; None: it does not.

    Attributes:
        step_s: as above; a change counts from the next step on.
        lose: the reply to the next request that contains this is lost, and its connection with it.
        lost: how many were.
    """

    def __init__(self, target: int, *, step_s: float = 0, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.port = 0
        self.step_s = step_s
        self.lose: bytes | None = None
        self.lost = 0
        self._tls = tls
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="link")
        self._stop: asyncio.Event = asyncio.Event()
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
        self._loop.call_soon_threadsafe(self._silence)

    def _cut(self) -> None:
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    def _silence(self) -> None:
        for connection in self._connections:
            connection.silent = True

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        current = asyncio.current_task()
        forwarding = [task for task in asyncio.all_tasks() if task is not current]
        # Not by cancelling: streams of Python 3.11 log a traceback for a connection whose task was cancelled.
        self._cut()
        await asyncio.gather(*forwarding, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(writer, back)
        self._connections.append(connection)
        if self._stop.is_set():
            connection.abort()
            return
        doomed = asyncio.Event()
        await asyncio.gather(
            self._pump(reader, back, connection, lambda request: self._note(request, doomed)),
            self._pump(there, writer, connection, lambda _: doomed.is_set()),
            return_exceptions=True,
        )
        if connection.silent:
            return  # neither side may hear of its end before the next cut
        with contextlib.suppress(ValueError):  # a cut has removed it
            self._connections.remove(connection)

    def _note(self, request: bytes, doomed: asyncio.Event) -> bool:
        if self.lose is not None and self.lose in request:
            self.lose = None
            self.lost += 1
            doomed.set()
        return False

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: "_Connection",
        drops: Callable[[bytes], bool],
    ) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_STEP_BYTES):
                    if connection.silent:
                        continue
                    if drops(data):
                        break
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(self.step_s)
        finally:
            if not connection.silent:
                writer.transport.abort()

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


class _Connection:
    """Both ends of one forwarded connection."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self.silent = False
        self._writers = writers

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

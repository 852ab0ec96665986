"""A TCP link to Redis that is slow, loses a reply, or leads somewhere else from now on, as a virtual address does."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_STEP_BYTES = 32 * 2**10


class Link:
    """Forwards connections of a free loopback port in a thread of its own. A context manager.

    Args:
        target: port that new connections lead to; those that stand stay where they are.
        step_s: pause after each 32 KiB.

    Attributes:
        lose: the reply to the next request that contains this is lost, and its connection with it.
        lost: how many were.
    """

    def __init__(self, target: int, *, step_s: float = 0) -> None:
        self.target = target
        self.port = 0
        self.lose: bytes | None = None
        self.lost = 0
        self._step_s = step_s
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="link")
        self._stop: asyncio.Event = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        current = asyncio.current_task()
        forwarding = [task for task in asyncio.all_tasks() if task is not current]
        # Not by cancelling: streams of Python 3.11 log a traceback for a connection whose task was cancelled.
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*forwarding, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, back]
        if self._stop.is_set():
            for late in (writer, back):
                late.transport.abort()
            return
        doomed = asyncio.Event()
        await asyncio.gather(
            self._pump(reader, back, lambda request: self._note(request, doomed)),
            self._pump(there, writer, lambda _: doomed.is_set()),
            return_exceptions=True,
        )

    def _note(self, request: bytes, doomed: asyncio.Event) -> bool:
        if self.lose is not None and self.lose in request:
            self.lose = None
            self.lost += 1
            doomed.set()
        return False

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, drops: Callable[[bytes], bool]
    ) -> None:
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_STEP_BYTES):
                    if drops(data):
                        break
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(self._step_s)
        finally:
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

"""A scripted server for what blocks the thread of the test: the command, and calls without `await`."""

import asyncio
from collections.abc import Callable, Iterator
from queue import Queue
from threading import Thread

import pytest

from tests.processes import PATIENCE_S
from tests.unit.embedq.scripted import Answer, Scripted, scripted


@pytest.fixture
def elsewhere() -> Iterator[Scripted]:
    """A server in a thread of its own. Say in `answers` what it is to answer."""
    scripts: Queue[tuple[Scripted, Callable[[], object]]] = Queue()

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        async with scripted(Answer(200, {})) as script:
            scripts.put((script, lambda: loop.call_soon_threadsafe(stop.set)))
            await stop.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    script, stop = scripts.get(timeout=PATIENCE_S)
    yield script
    stop()
    thread.join()

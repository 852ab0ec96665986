"""One request that waits for one task."""

import asyncio


class Waiter:
    """Woken by the hub when its task ends or changes, and by the connection when the client leaves.

    Attributes:
        task_id: whose news it waits for.
        version: the version of the task that the caller has seen; None when only the end matters.
        ended: the task has ended, or is not held any more.
        gone: the client has left.
        dismissed: the server stops.
    """

    __slots__ = ("_future", "_woken", "dismissed", "ended", "gone", "task_id", "version")

    def __init__(self, task_id: str, version: int | None = None) -> None:
        self.task_id = task_id
        self.version = version
        self.ended = False
        self.gone = False
        self.dismissed = False
        self._woken = False
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Ends the present wait, or the next one at once."""
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """The client has left."""
        self.gone = True
        self.wake()

    def dismiss(self) -> None:
        """The server stops."""
        self.dismissed = True
        self.wake()

    async def changed(self, timeout_s: float) -> bool:
        """Whether there was news within `timeout_s` seconds, or since the last call.

        A bare future and a timer: `asyncio.wait_for` makes a task of every wait on Python 3.11.
        """
        if not self._woken and timeout_s > 0:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(timeout_s, _expire, self._future)
            try:
                await self._future
            finally:
                timer.cancel()
                self._future = None
        woken, self._woken = self._woken, False
        return woken


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

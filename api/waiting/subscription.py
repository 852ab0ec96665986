"""Who waits for which task, and the one subscription by which Redis tells a process that tasks have ended.

Publishing is at-most-once, so every few seconds, and after a reconnect, all awaited tasks are read in one call.
Register, then submit or read, then wait: in that order no end can slip through.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis.asyncio.client import PubSub
from starlette.types import Receive

from api.error_responses import CallerGone
from tasks.errors import EmbedqError
from tasks.ledger.client import AsyncLedger, reason
from tasks.ledger.read import read_tasks, results_in
from tasks.ledger.redis_keys import ENDED_CHANNEL, answers_channel
from tasks.ledger.task import Result, Task

_log = logging.getLogger(__name__)

_READ_AT_ONCE = 500
"""Tasks per call while catching up: others shall not wait for long."""
_BACKOFF_S, _BACKOFF_DOUBLINGS = 0.05, 4
_SOON_S = 0.25
"""Most answers come before this. Only then the connection is watched, because that costs an asyncio task."""


@dataclass(frozen=True, slots=True)
class WaitingTimes:
    """Times of requests that wait.

    Attributes:
        restart_s: a model without a worker for so long is served by none; before that, its worker may be about to start
            again.
        catch_up_s: between two readings of all awaited tasks, and between two pings of the subscription.
    """

    restart_s: float = 60.0
    catch_up_s: float = 5.0


async def until_gone(receive: Receive) -> None:
    """Returns when the client has closed the connection. The body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass  # a GET may come with an empty body, which is of no interest


class Wait:
    """One request that waits for one task.

    Attributes:
        task_id: which.
        stored: the ledger has the task. Before that, that it is not there says nothing.
        over: done when the task has ended, or is not held any more, with its result if that came with the news;
            cancelled when the server stops.
    """

    __slots__ = ("over", "stored", "task_id")

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.stored = False
        self.over: asyncio.Future[Result | None] = asyncio.get_running_loop().create_future()

    @property
    def ended(self) -> bool:
        """Whether it is over because of the task."""
        return self.over.done() and not self.over.cancelled()

    @property
    def result(self) -> Result | None:
        """The result of the task, if it came with the news."""
        return self.over.result() if self.ended else None

    def end(self, result: Result | None = None) -> None:
        """The task has ended."""
        if not self.over.done():
            self.over.set_result(result)

    async def until_over(self, timeout_s: float, gone: Callable[[], Awaitable[None]]) -> bool:
        """Waits so long at most; True: the client has left before, of whom `gone` tells."""
        soon_s = min(timeout_s, _SOON_S)
        if not self.over.done() and soon_s > 0:
            await asyncio.wait([self.over], timeout=soon_s)
        if self.over.done() or timeout_s <= soon_s:
            return False
        leaving = asyncio.ensure_future(gone())
        try:
            both = (self.over, leaving)
            await asyncio.wait(both, timeout=timeout_s - soon_s, return_when=asyncio.FIRST_COMPLETED)
            return leaving.done() and not self.over.done()
        finally:
            leaving.cancel()


class Subscription:
    """The waiting requests of this process, by task.

    Attributes:
        name: of this process; what is submitted with it (`NewTask.answer_to`) is answered on a channel of its own.
        subscribed: set while ends are heard.
    """

    def __init__(self, ledger: AsyncLedger, times: WaitingTimes = WaitingTimes()) -> None:
        self.times = times
        self.name = secrets.token_hex(6)
        self._ledger = ledger
        self._waits: dict[str, set[Wait]] = {}
        self._closing = False
        self.subscribed = asyncio.Event()

    @property
    def waiting_requests(self) -> int:
        """How many requests wait at this moment."""
        return sum(len(group) for group in self._waits.values())

    @contextmanager
    def waiting(self, task_id: str) -> Iterator[Wait]:
        """A registered wait. Enter before submitting or reading, so that nothing is missed in between."""
        wait = Wait(task_id)
        group = self._waits.setdefault(task_id, set())
        group.add(wait)
        if self._closing:
            wait.over.cancel()
        try:
            yield wait
        finally:
            group.discard(wait)
            if not group and self._waits.get(task_id) is group:
                del self._waits[task_id]

    async def read_at_end(
        self, task_id: str, read: Callable[[], Awaitable[Task]], wait_s: float, gone: Callable[[], Awaitable[None]]
    ) -> Task:
        """The task at its end, or as it is after `wait_s` or when the server stops.

        Args:
            task_id: whose.
            read: reads the task; what it raises is raised.
            wait_s: 0: it is read at once and once.
            gone: returns when the client has left.

        Raises:
            CallerGone: the client left first.
        """
        with self.waiting(task_id) as wait:  # registered before the task is read: no end can slip through
            task = await read()
            if task.state.terminal or wait_s <= 0:
                return task
            wait.stored = True
            if await wait.until_over(wait_s, gone):
                raise CallerGone
            return await read()

    def awaited_by_others(self, wait: Wait) -> bool:
        """Whether another request of this process waits for the same task."""
        return len(self._waits.get(wait.task_id, ())) > 1

    def close(self) -> None:
        """Sends everybody who waits home: the server stops. Every connection calls this."""
        if self._closing:
            return
        self._closing = True
        for group in self._waits.values():
            for wait in group:
                wait.over.cancel()

    async def run(self) -> None:
        """Listens for ever; reconnects with growing pauses, and logs an outage once."""
        failures = 0
        while True:
            try:
                async with self._ledger.client.pubsub() as pubsub:
                    await pubsub.subscribe(ENDED_CHANNEL, answers_channel(self.name))
                    await self._listen(pubsub)
            except Exception as error:  # noqa: BLE001 - if this loop died, every request that waits would go deaf
                failures = 1 if self.subscribed.is_set() else failures + 1
                self.subscribed.clear()
                if failures == 1:
                    _log.warning("no subscription to the ends of tasks (%s); trying again", reason(error))
                await asyncio.sleep(_BACKOFF_S * 2 ** min(failures, _BACKOFF_DOUBLINGS))

    async def _listen(self, pubsub: PubSub) -> None:
        """Passes messages on until the connection fails (`RedisError`), or may lead to a Redis that does not serve."""
        master, seen = self._ledger.master, self._ledger.master.moves
        answers = answers_channel(self.name).encode()
        due_s = time.monotonic()
        until_s = due_s + self.times.catch_up_s
        alive = True  # something came since the last ping
        while seen == master.moves or time.monotonic() < until_s:
            message = await pubsub.get_message(timeout=max(0.0, due_s - time.monotonic()))
            alive = alive or message is not None
            match message:
                case {"type": "message", "channel": bytes(channel), "data": bytes(data)}:
                    self._heard(data, with_answers=channel == answers)
                case {"type": "subscribe", "data": 2}:  # both: at first, and on a connection in a dead one's place
                    self.subscribed.set()
                    due_s = time.monotonic()  # what was published before is caught up with now
            if time.monotonic() < due_s:
                continue
            due_s = time.monotonic() + self.times.catch_up_s
            if not alive:
                # A half-open connection delivers nothing and breaks only when something is sent.
                raise ConnectionError("the subscription does not answer")
            if self.subscribed.is_set():
                alive = False
                await pubsub.ping()
            try:
                await self.catch_up()
            except EmbedqError:
                _log.warning("could not catch up with awaited tasks; trying again in %.0f s", self.times.catch_up_s)

    async def catch_up(self) -> None:
        """Reads every awaited task and ends the waits of those that have ended."""
        awaited = [task_id for task_id, group in self._waits.items() if any(wait.stored for wait in group)]
        for start in range(0, len(awaited), _READ_AT_ONCE):
            ids = awaited[start : start + _READ_AT_ONCE]
            tasks = await self._ledger.run(read_tasks(ids))
            for task_id, task in zip(ids, tasks, strict=True):
                if task is None or task.state.terminal:
                    self._end(task_id)

    def _heard(self, message: bytes, *, with_answers: bool) -> None:
        if not self._waits:
            return
        if with_answers:
            for result in results_in(message):
                self._end(result.task.id, result)
        else:
            for task_id in message.decode().split():
                self._end(task_id)

    def _end(self, task_id: str, result: Result | None = None) -> None:
        for wait in self._waits.get(task_id, ()):
            wait.end(result)

"""Requests that wait for tasks. One subscription per process carries the news of all tasks to them.

Publishing is at-most-once, so every few seconds, and after a reconnect, all awaited tasks are read in one call.
Register, then submit or read, then wait: in that order no answer can slip through.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from redis.asyncio.client import PubSub
from starlette.requests import Request

from tasks.errors import EmbedqError
from tasks.ledger import ENDED_CHANNEL, AsyncLedger, operations
from tasks.ledger.answers import Answer, answers_in
from tasks.ledger.connection import Refusals
from tasks.ledger.keys import answers_channel


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


class Waiter:
    """One request that waits for one task.

    The hub wakes it when its task ends, the connection when the client leaves.

    Attributes:
        task_id: whose news it waits for.
        ended: the task has ended, or is not held any more.
        gone: the client has left.
        dismissed: the server stops.
        answer: its result, if it came with the news.
    """

    __slots__ = ("_future", "_woken", "answer", "dismissed", "ended", "gone", "task_id")

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        self.ended = False
        self.gone = False
        self.dismissed = False
        self.answer: Answer | None = None
        self._woken = False
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Ends the present wait, or the next one at once."""
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def leave(self) -> None:
        """The client has left, or may not wait any longer."""
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


class Leaves(Protocol):
    """What waits for somebody."""

    def leave(self) -> None:
        """Nobody waits for it any more."""


@contextmanager
def watched(request: Request, waiter: Leaves) -> Iterator[None]:
    """While inside, the end of the connection makes `waiter` leave. The request's body must have been read before."""
    watching = asyncio.create_task(_until_gone(request, waiter))
    try:
        yield
    finally:
        watching.cancel()


async def _until_gone(request: Request, waiter: Leaves) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # a GET may come with an empty body, which is of no interest
    waiter.leave()


_log = logging.getLogger(__name__)

_READ_AT_ONCE = 500
"""Tasks per call while catching up: one script must not hold Redis for long."""
_BACKOFF_S, _BACKOFF_DOUBLINGS = 0.05, 4


class Hub:
    """The waiting requests of this process, by task.

    Attributes:
        name: of this process; what is submitted with it (`Submission.answer_to`) is answered on a channel of its own.
    """

    def __init__(self, ledger: AsyncLedger, times: WaitingTimes = WaitingTimes()) -> None:
        self.times = times
        self.name = secrets.token_hex(6)
        self._ledger = ledger
        self._waiters: dict[str, set[Waiter]] = {}
        self._closing = False
        self.subscribed = asyncio.Event()

    @property
    def waiting_requests(self) -> int:
        """How many requests wait at this moment."""
        return sum(len(group) for group in self._waiters.values())

    @contextmanager
    def waiting(self, task_id: str) -> Iterator[Waiter]:
        """A registered waiter. Enter before submitting or reading, so that nothing is missed in between."""
        waiter = Waiter(task_id)
        group = self._waiters.setdefault(task_id, set())
        group.add(waiter)
        if self._closing:
            waiter.dismiss()
        try:
            yield waiter
        finally:
            group.discard(waiter)
            if not group and self._waiters.get(task_id) is group:
                del self._waiters[task_id]

    def awaited_by_others(self, waiter: Waiter) -> bool:
        """Whether another request of this process waits for the same task."""
        return len(self._waiters.get(waiter.task_id, ())) > 1

    def close(self) -> None:
        """Sends everybody who waits home: the server stops."""
        self._closing = True
        for group in self._waiters.values():
            for waiter in group:
                waiter.dismiss()

    async def run(self) -> None:
        """Listens for ever; reconnects with growing pauses, and logs an outage once."""
        failures = 0
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - if this loop died, every request that waits would go deaf
                failures = 1 if self.subscribed.is_set() else failures + 1
                self.subscribed.clear()
                if failures == 1:
                    _log.warning("no subscription to the ends of tasks (%s); trying again", type(error).__name__)
                await asyncio.sleep(_BACKOFF_S * 2 ** min(failures, _BACKOFF_DOUBLINGS))

    async def _listen(self) -> None:
        async with self._ledger.client.pubsub() as subscription:
            await subscription.subscribe(ENDED_CHANNEL, answers_channel(self.name))
            await _Session(subscription, self, self._ledger.refusals).run()

    async def catch_up(self) -> None:
        """Reads every awaited task and wakes those who missed its end."""
        awaited = list(self._waiters)
        for start in range(0, len(awaited), _READ_AT_ONCE):
            ids = awaited[start : start + _READ_AT_ONCE]
            tasks = await self._ledger.run(operations.read_tasks(ids))
            for task_id, task in zip(ids, tasks, strict=True):
                if task is None or task.state.terminal:
                    self._tell_ended(task_id)

    def heard(self, message: bytes) -> None:
        """Wakes the waiters of one message: ids of tasks that have ended."""
        if not self._waiters:
            return
        for task_id in message.decode().split():
            self._tell_ended(task_id)

    def answered(self, message: bytes) -> None:
        """Wakes the waiters of tasks whose results have come."""
        if not self._waiters:
            return
        for answer in answers_in(message):
            self._tell_ended(answer.task_id, answer)

    def _tell_ended(self, task_id: str, answer: Answer | None = None) -> None:
        for waiter in self._waiters.get(task_id, ()):
            waiter.ended = True
            waiter.answer = answer or waiter.answer
            waiter.wake()


class _Session:
    """One subscription from its confirmation to its loss."""

    def __init__(self, subscription: PubSub, hub: Hub, refusals: Refusals) -> None:
        self._subscription = subscription
        self._hub = hub
        self._answers = answers_channel(hub.name).encode()
        self._refusals, self._seen = refusals, refusals.count
        self._catch_up_s = hub.times.catch_up_s
        self._until = time.monotonic() + self._catch_up_s
        self._unanswered_ping = False
        self._due = time.monotonic()

    async def run(self) -> None:
        """Passes messages on until the connection fails (`RedisError`), or may lead to a Redis that does not serve."""
        while self._seen == self._refusals.count or time.monotonic() < self._until:
            message = await self._subscription.get_message(timeout=max(0.0, self._due - time.monotonic()))
            match message:
                case {"type": "message", "channel": bytes(channel), "data": bytes(data)}:
                    if channel == self._answers:
                        self._hub.answered(data)
                    else:
                        self._hub.heard(data)
                case {
                    "type": "subscribe",
                    "data": 2,
                }:  # both channels: at first, and on a connection in a dead one's place
                    self._hub.subscribed.set()
                    self._unanswered_ping = False
                    self._due = time.monotonic()  # what was published before is caught up with now
                case {"type": "pong"}:
                    self._unanswered_ping = False
            if time.monotonic() >= self._due:
                await self._maintain()

    async def _maintain(self) -> None:
        self._due = time.monotonic() + self._catch_up_s
        if self._unanswered_ping:
            # A half-open connection delivers nothing and breaks only when something is sent.
            raise ConnectionError("the subscription does not answer")
        if self._hub.subscribed.is_set():
            self._unanswered_ping = True
            await self._subscription.ping()
        try:
            await self._hub.catch_up()
        except EmbedqError:
            _log.warning("could not catch up with awaited tasks; trying again in %.0f s", self._catch_up_s)

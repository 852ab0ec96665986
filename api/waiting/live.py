"""Streams of what has no news of its own: it is read again and again, once per interval for all who watch the same.

Nothing is read while nobody watches. Values are states, not messages: a client that reads slowly is told how the last
value differs from the last one that it was told, and misses those between.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from starlette.requests import Request

from api.server.overload import MAX_LAG_S
from api.waiting.hub import Waiter, WaitingTimes, watched
from tasks.errors import EmbedqError, Unavailable

RETRY_S = 1.0
"""While Redis is away; and what clients are told to wait before they connect again."""
RETRY = b"retry: %d\n\n" % (RETRY_S * 1000)
COMMENT = b": still here\n\n"

_log = logging.getLogger(__name__)

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Feed(Generic[V]):
    """What a stream shows.

    Attributes:
        read: the value of now. `Unavailable`: it is tried again after `interval_s`, and the streams stay. Another
            `EmbedqError`: what they show is gone, and they end.
        events: what leads a client from one value to another, as it is sent; empty if nothing is to be told. The first
            value is None for a client that has been told nothing. Values may lie between the two.
        interval_s: from one reading to the next.
    """

    read: Callable[[], Awaitable[V]]
    events: Callable[[V | None, V], bytes]
    interval_s: float


class LiveStreams:
    """The polled streams of one process.

    Args:
        times: of requests that wait.
        lag_s: by how much the event loop was late of late. While it is too late, values are not renewed: those who
            look on leave the time to those who work.
    """

    def __init__(self, times: WaitingTimes, lag_s: Callable[[], float]) -> None:
        self._times = times
        self._lag_s = lag_s
        self._polls: dict[Hashable, _Poll[Any]] = {}
        self._closing = False

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return sum(len(poll.listeners) for poll in self._polls.values())

    @property
    def background(self) -> "list[asyncio.Task[None]]":
        """The tasks that read."""
        return [poll.task for poll in self._polls.values()]

    def close(self) -> None:
        """Ends all streams, and each that would begin: the server stops."""
        self._closing = True
        for poll in self._polls.values():
            for listener in poll.listeners:
                listener.dismiss()

    async def stream(self, request: Request, key: Hashable, feed: Feed[V]) -> AsyncGenerator[bytes]:
        """The events of a feed as they are sent, for an `EventStream`; comments between them while nothing happens.

        Args:
            request: while it is connected. The caller has been let in.
            key: of what is shown: streams with the same one share the readings of the first one's feed. What only
                some callers may see has its owner in the key.
            feed: what is shown.
        """
        yield RETRY
        told, value, sent_s = 0, None, time.monotonic()
        with self._listening(key, feed) as (poll, listener), watched(request, listener):
            while not (listener.gone or listener.dismissed):
                if poll.number != told:
                    text = poll.events_since(told, value)
                    told, value = poll.number, poll.value
                elif time.monotonic() >= sent_s + self._times.keep_alive_s:
                    text = COMMENT
                else:
                    await listener.changed(sent_s + self._times.keep_alive_s - time.monotonic())
                    continue
                if text:
                    yield text
                    sent_s = time.monotonic()

    @contextmanager
    def _listening(self, key: Hashable, feed: Feed[V]) -> "Iterator[tuple[_Poll[V], Waiter]]":
        poll = self._polls.get(key)
        if poll is None:
            poll = self._polls[key] = _Poll(feed, self._lag_s)
            poll.task = asyncio.create_task(self._run(key, poll), name=f"live {key}")
        listener = Waiter("")
        poll.listeners.add(listener)
        if self._closing:
            listener.dismiss()
        try:
            yield poll, listener
        finally:
            poll.listeners.discard(listener)
            if not poll.listeners:
                poll.pause.wake()

    async def _run(self, key: Hashable, poll: "_Poll[Any]") -> None:
        try:
            await poll.run()
        except EmbedqError:
            pass  # the streams end, and a client that comes again learns why
        except Exception as error:  # noqa: BLE001 - a defect of one feed ends its streams and nothing else
            # Its type only: the message of an exception may hold what somebody submitted.
            _log.error("a stream of events failed: %s", type(error).__name__)
        finally:
            del self._polls[key]  # no await since nobody listened, so nobody can have come
            for listener in poll.listeners:
                listener.leave()


class _Poll(Generic[V]):
    """The readings of one feed.

    Attributes:
        number: how many values there were.
        value: the last one; None before the first.
    """

    task: "asyncio.Task[None]"

    def __init__(self, feed: Feed[V], lag_s: Callable[[], float]) -> None:
        self._feed = feed
        self._lag_s = lag_s
        self._texts: dict[int, bytes] = {}
        """What leads to the present value, by the number of the value before."""
        self.listeners: set[Waiter] = set()
        self.pause = Waiter("")
        self.number = 0
        self.value: V | None = None

    def events_since(self, number: int, value: V | None) -> bytes:
        """What a client is told whose last value was this one. Clients of the same value get the same bytes."""
        text = self._texts.get(number)
        if text is None:
            text = self._texts[number] = self._feed.events(value, cast("V", self.value))
        return text

    async def run(self) -> None:
        """Reads until nobody listens."""
        while self.listeners:
            if not self.number or self._lag_s() <= MAX_LAG_S:
                await self._read()
            await self.pause.changed(self._feed.interval_s)

    async def _read(self) -> None:
        try:
            self.value = await self._feed.read()
        except Unavailable:
            return
        self.number += 1
        self._texts.clear()
        for listener in self.listeners:
            listener.wake()

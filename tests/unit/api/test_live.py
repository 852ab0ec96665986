"""Streams that poll: shared readings, heartbeats, clients that are slow, and their end."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.types import Message

from api.waiting.hub import WaitingTimes
from api.waiting.live import COMMENT, RETRY, Feed, LiveStreams
from stack.testing import eventually
from tasks.errors import DatasetUnknown, RedisUnavailable

QUICK_S, LONG_S = 0.001, 60.0
KEY = ("numbers", "ann")


class Client:
    """A connection that stays until it leaves."""

    def __init__(self) -> None:
        self._left = asyncio.Event()
        self.request = Request({"type": "http"}, self._receive)

    def leave(self) -> None:
        self._left.set()

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}


class Numbers:
    """A feed that counts its readings. What is put into `fails` is raised by the next ones."""

    def __init__(self, interval_s: float = QUICK_S) -> None:
        self.readings = 0
        self.fails: list[Exception] = []
        self.feed = Feed(self.read, self.events, interval_s)

    async def read(self) -> int:
        await asyncio.sleep(0)
        if self.fails:
            raise self.fails.pop(0)
        self.readings += 1
        return self.readings

    def events(self, before: int | None, now: int) -> bytes:
        return b"%d-%d" % (before or 0, now)


@pytest.fixture
def clock() -> SimpleNamespace:
    """By how much the event loop is late."""
    return SimpleNamespace(lag_s=0.0)


@pytest.fixture
def live(clock: SimpleNamespace) -> Iterator[LiveStreams]:
    live = LiveStreams(WaitingTimes(keep_alive_s=LONG_S), lambda: clock.lag_s)
    yield live
    assert live.listeners == 0


async def opened(live: LiveStreams, numbers: Numbers, client: Client | None = None) -> AsyncGenerator[bytes]:
    stream = live.stream((client or Client()).request, KEY, numbers.feed)
    assert await anext(stream) == RETRY
    return stream


async def all_ended(live: LiveStreams) -> None:
    async def ended() -> bool:
        return not live.background

    await eventually(ended)


async def test_the_value_of_now_then_how_each_differs_from_the_one_before(live: LiveStreams) -> None:
    stream = await opened(live, Numbers())

    assert [await anext(stream) for _ in range(3)] == [b"0-1", b"1-2", b"2-3"]
    await stream.aclose()
    await all_ended(live)


async def test_many_share_a_reading_and_a_late_one_has_the_last_value_at_once(live: LiveStreams) -> None:
    numbers = Numbers(interval_s=LONG_S)
    streams = [await opened(live, numbers) for _ in range(10)]
    first = [await anext(stream) for stream in streams]
    streams.append(await opened(live, numbers))

    assert {*first, await anext(streams[-1])} == {b"0-1"}
    assert numbers.readings == 1
    assert live.listeners == 11
    for stream in streams:
        await stream.aclose()
    await all_ended(live)


async def test_other_keys_have_readings_of_their_own(live: LiveStreams) -> None:
    mine, yours = Numbers(LONG_S), Numbers(LONG_S)
    one = live.stream(Client().request, ("numbers", "ann"), mine.feed)
    other = live.stream(Client().request, ("numbers", "bob"), yours.feed)
    for stream in (one, other):
        assert [await anext(stream), await anext(stream)] == [RETRY, b"0-1"]
        await stream.aclose()

    assert (mine.readings, yours.readings) == (1, 1)


async def test_nothing_is_read_when_all_have_left(live: LiveStreams) -> None:
    numbers, client = Numbers(), Client()
    stream = await opened(live, numbers, client)
    await anext(stream)
    client.leave()
    assert [text async for text in stream][10:] == []
    await all_ended(live)
    readings = numbers.readings

    again = await opened(live, numbers)
    assert await anext(again) == b"0-%d" % (readings + 1)
    await again.aclose()
    await all_ended(live)


async def test_a_slow_client_misses_values_and_holds_one(live: LiveStreams) -> None:
    numbers = Numbers()
    slow, quick = await opened(live, numbers), await opened(live, numbers)
    assert await anext(slow) == b"0-1"
    while numbers.readings < 5:
        await anext(quick)
    await quick.aclose()

    before, now = map(int, (await anext(slow)).split(b"-"))
    assert before == 1
    assert now >= 5
    await slow.aclose()
    await all_ended(live)


async def test_an_outage_leaves_the_streams_open(live: LiveStreams) -> None:
    numbers = Numbers()
    stream = await opened(live, numbers)
    assert await anext(stream) == b"0-1"
    numbers.fails = [RedisUnavailable("away")] * 3

    assert await anext(stream) == b"1-2"
    assert not numbers.fails
    await stream.aclose()
    await all_ended(live)


@pytest.mark.parametrize(("error", "logged"), [(DatasetUnknown("gone"), False), (ValueError("a secret"), True)])
async def test_what_is_gone_or_defect_ends_its_streams(
    live: LiveStreams, error: Exception, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = Numbers()
    numbers.fails = [error]
    stream = await opened(live, numbers)

    assert [text async for text in stream] == []
    assert ("ValueError" in caplog.text) is logged
    assert "a secret" not in caplog.text
    await all_ended(live)


async def test_comments_while_nothing_is_told() -> None:
    live = LiveStreams(WaitingTimes(keep_alive_s=QUICK_S), lambda: 0.0)

    async def read() -> int:
        return 1

    feed = Feed(read, lambda before, _now: b"" if before else b"first", QUICK_S)
    stream = live.stream(Client().request, KEY, feed)
    texts = [await anext(stream) for _ in range(20)]

    assert set(texts) == {RETRY, b"first", COMMENT}
    assert texts.count(b"first") == 1
    await stream.aclose()
    await all_ended(live)


async def test_a_stop_ends_all_and_lets_none_begin(live: LiveStreams) -> None:
    numbers = Numbers(interval_s=LONG_S)
    streams = [await opened(live, numbers) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    live.close()

    assert [[text async for text in stream] for stream in streams] == [[], [], []]
    assert [text async for text in await opened(live, numbers)] == []
    await all_ended(live)


async def test_while_the_loop_is_late_values_are_not_renewed(live: LiveStreams, clock: SimpleNamespace) -> None:
    numbers = Numbers()
    clock.lag_s = 1.0
    stream = await opened(live, numbers)
    assert await anext(stream) == b"0-1"  # a client that has nothing yet gets something
    later = asyncio.ensure_future(anext(stream))
    other = LiveStreams(WaitingTimes(keep_alive_s=LONG_S), lambda: 0.0)
    measure = await opened(other, Numbers())
    for _ in range(5):  # turns of a stream with the same interval
        await anext(measure)

    assert numbers.readings == 1
    clock.lag_s = 0.0
    assert await later == b"1-2"
    await stream.aclose()
    await measure.aclose()
    await all_ended(live)

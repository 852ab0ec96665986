"""The last hour in figures, in a real Redis: several processes, restarts, outages, and the route that returns it."""

import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from types import SimpleNamespace

import httpx
import pytest
import redis

from api.queue.history import Figures, History, RequestCounts
from api.queue.served_models import ServedModels
from stack.testing import RedisServer
from tasks.errors import RedisUnavailable, StorageFull
from tasks.ledger import AsyncLedger
from tasks.records.history import STEP_S, ProcessCounts, SharedFigures, write_step
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, MODEL, ServedApp
from tests.unit.api.embedding_requests import WORKER, overview
from worker_config.settings import load_settings

BEGIN_S = 1_800_000_000
"""Of Redis's clock. A step begins here."""
WRONG = {"authorization": "Bearer wrong"}


class Process:
    """The history of one web tier process that knows the ledger's totals. Time passes where it is told to."""

    def __init__(self, ledger: AsyncLedger, clock: SimpleNamespace) -> None:
        self._ledger, self._clock = ledger, clock
        self.counts = RequestCounts()
        self.registry = ServedModels(load_settings(served_name=MODEL))
        self.history = History(ledger, self.registry, self.counts, lambda: clock.now_s)
        self.items = 0
        self.see()

    def serve(self, requests: int, seconds: float = 0.125, status: int = 200) -> None:
        for _ in range(requests):
            self.counts.served("POST", "/v1/embeddings", status, seconds)

    def see(self, items: int = 0, backlog: int = 0) -> None:
        """An overview of the ledger comes, with so many more committed texts."""
        self.items += items
        seen = overview(rate=1000, online=backlog)
        self.registry.update({MODEL: replace(seen, workers=(WORKER,), counters={"committed_items": self.items})})
        self.registry.seen_at = self._clock.now_s

    async def last(self, steps: int) -> list[Figures]:
        """The last steps, as this process reads them."""
        return list((await self.history.read(steps))[1])


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=float(BEGIN_S))


class World:
    """A ledger, its clock and the processes."""

    def __init__(self, ledger: AsyncLedger, clock: SimpleNamespace) -> None:
        self.ledger, self.clock = ledger, clock
        self._set()

    async def process(self) -> Process:
        """One that has just started."""
        process = Process(self.ledger, self.clock)
        await process.history.write()  # it learns the time
        return process

    def pass_s(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self._set()

    def _set(self) -> None:
        self.ledger.frozen_ms = round(self.clock.now_s * 1000)


@pytest.fixture
async def world(redis_url: str, clock: SimpleNamespace) -> AsyncIterator[World]:
    ledger = AsyncLedger.connect(redis_url)
    yield World(ledger, clock)
    await ledger.close()


async def test_processes_are_added_up_and_what_they_share_is_not(world: World) -> None:
    one, other = await world.process(), await world.process()
    one.serve(30)
    other.serve(20)
    other.serve(1, seconds=8)
    other.serve(5, status=503)
    world.pass_s(STEP_S)
    for process in (one, other):
        process.see(items=400, backlog=2500)
        await process.history.write()
    world.pass_s(2)

    first, (figures,) = await one.history.read(1)

    assert first * STEP_S == BEGIN_S
    assert (figures.queries, figures.errors) == (5.1, 0.5)
    assert (figures.passages, figures.backlog_seconds) == (40, 2.5)
    assert figures.p50_ms == pytest.approx(125, rel=0.05)
    assert figures.p99_ms == pytest.approx(8000, rel=0.05)
    assert await other.last(1) == [figures]


async def test_one_that_has_just_started_leaves_what_they_share_to_the_others(world: World) -> None:
    one = await world.process()
    world.pass_s(STEP_S - 1)
    late = await world.process()
    world.pass_s(1)
    for process in (one, late):
        process.see(items=400)
        await process.history.write()
    world.pass_s(2)

    assert [figures.passages for figures in await one.last(1)] == [40]


async def test_a_step_is_told_when_all_had_time_to_write_it(world: World) -> None:
    process = await world.process()
    world.pass_s(STEP_S)
    await process.history.write()
    world.pass_s(1.9)
    before = process.history.newest()
    world.pass_s(0.1)

    assert process.history.newest() == before + 1


async def test_a_step_is_written_once(world: World) -> None:
    process = await world.process()
    process.serve(10)
    world.pass_s(STEP_S - 0.2)  # a timer that seems early, because the clock was set anew
    await process.history.write()
    process.serve(20)
    world.pass_s(0.2)
    await process.history.write()
    world.pass_s(STEP_S)
    await process.history.write()
    world.pass_s(2)

    assert [figures.queries for figures in await process.last(2)] == pytest.approx([1, 2], rel=0.03)


async def test_a_process_that_starts_again_loses_its_running_step_alone(world: World) -> None:
    process = await world.process()
    process.serve(10)
    world.pass_s(STEP_S)
    await process.history.write()
    process.serve(10)
    world.pass_s(5)
    again = await world.process()
    again.serve(3)
    world.pass_s(5)
    await again.history.write()
    world.pass_s(2)

    assert [figures.queries for figures in await again.last(2)] == [1, 0.3]


async def test_an_outage_of_redis_leaves_a_gap(private_redis: RedisServer, clock: SimpleNamespace) -> None:
    world = World(AsyncLedger.connect(private_redis.url), clock)
    process = await world.process()
    for step in range(5):
        process.serve(10)
        process.see(items=100)
        world.pass_s(STEP_S)
        if step == 2:
            private_redis.kill()
            with pytest.raises(RedisUnavailable):
                await process.history.write()
            with pytest.raises(RedisUnavailable):
                await process.last(1)
            private_redis.start()
        else:
            await process.history.write()
    world.pass_s(2)

    assert [figures.queries for figures in await process.last(6)] == [None, 1, 1, None, 1, 1]
    await world.ledger.close()


async def test_after_an_outage_the_texts_of_a_step_are_not_those_of_the_gap(world: World) -> None:
    process = await world.process()
    rates = []
    for seconds in (STEP_S, 6 * STEP_S, STEP_S):
        world.pass_s(seconds)
        process.see(items=600)
        await process.history.write()
        world.pass_s(2)
        rates.append((await process.last(1))[0].passages)
        world.pass_s(-2)

    assert rates == [60, None, 60]


async def test_redis_that_lost_its_data(world: World) -> None:
    process = await world.process()
    process.see(items=5000)
    world.pass_s(STEP_S)
    await process.history.write()
    process.items = 0
    process.see()
    world.pass_s(STEP_S)
    await process.history.write()
    world.pass_s(2)

    (figures,) = await process.last(1)
    assert figures.passages is None


async def test_a_full_redis_refuses_a_step_and_nothing_else_happens(
    private_redis: RedisServer, clock: SimpleNamespace
) -> None:
    world = World(AsyncLedger.connect(private_redis.url), clock)
    process = await world.process()
    with private_redis.client() as client:
        limit = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", 1)
        world.pass_s(STEP_S)
        with pytest.raises(StorageFull):
            await process.history.write()
        assert client.keys("eq:history:*") == []
        client.config_set("maxmemory", limit)
    world.pass_s(STEP_S)
    await process.history.write()
    world.pass_s(2)
    assert [figures.queries for figures in await process.last(2)] == [None, 0]
    await world.ledger.close()


async def test_steps_that_change_no_more_are_read_once(world: World, redis_client: redis.Redis) -> None:
    process = await world.process()
    for _ in range(8):
        process.serve(10)
        world.pass_s(STEP_S)
        await process.history.write()
    world.pass_s(2)
    before = await process.last(360)
    redis_client.delete(*redis_client.keys("eq:history:*"))

    after = await process.last(360)

    assert [figures.queries for figures in before[-9:]] == [None, *[1.0] * 8]
    assert [figures.queries for figures in after[-9:]] == [None, *[1.0] * 5, None, None, None]


def test_requests_are_counted(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    with worker.serving():
        client.post("/v1/embeddings", json={"input": "x"})
        client.post("/embed", json={"inputs": "y"})
    client.post("/v1/embeddings", json={})
    client.post("/v1/tasks", json={"input": "x"})

    queries, errors = app.services.metrics.recent.take()

    assert (sum(queries.values()), errors) == (2, 0)


def noted(worker: LedgerWorker) -> int:
    """A step that has just passed gets figures; its number."""
    step = math.floor(time.time() / STEP_S) - 3
    counts = ProcessCounts(seconds=10, queries={-24: 20}, errors=0)
    worker.ledger.run(write_step(step, "other", counts, SharedFigures(12.34567, 1.0)))
    return step


def test_the_route(client: httpx.Client, worker: LedgerWorker) -> None:
    step = noted(worker)

    body = client.get("/v1/service/history", params={"minutes": 1}).json()
    series = {name: values[step - body["from"] // STEP_S] for name, values in body["series"].items()}

    assert (body["object"], body["step"], body["from"] % STEP_S) == ("history", STEP_S, 0)
    assert {name: len(values) for name, values in body["series"].items()} == dict.fromkeys(series, 6)
    assert series == {
        "queries": 2.0, "passages": 12.3457, "p50_ms": 130.5342, "p99_ms": 130.5342, "backlog_seconds": 1.0,
        "errors": 0.0,
    }  # fmt: skip
    whole = client.get("/v1/service/history?minutes=").json()
    assert len(whole["series"]["errors"]) == 360


def test_hostile_minutes(client: httpx.Client) -> None:
    hostile = ["0", "61", "-1", "1.5", "1e1", "x", "٣", " 5", "05", "9" * 5000, "1&minutes=x", "%00", "null", "NaN"]
    answers = [client.get(f"/v1/service/history?minutes={minutes}") for minutes in hostile]

    assert {(answer.status_code, answer.json()["error"]["param"]) for answer in answers} == {(400, "minutes")}


def test_the_history_needs_a_key(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=KEYS).client

    assert client.get("/v1/service/history", headers=WRONG).status_code == 401
    assert client.get("/v1/service/history", headers=ANN).status_code == 200

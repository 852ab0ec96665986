"""The bell and the watchdog: who rings, how often, and that a lost one is replaced."""

import math
import re

import httpx
import pytest
import redis

from api.served_models import ServedModels
from api.waiting.ledger_watch import LedgerWatch
from tasks.ledger.client import AsyncLedger
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL
from tests.processes import free_port, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import BellThread


def bells(connection: redis.Redis) -> int:
    length = connection.llen(bell_queue(MODEL))
    assert isinstance(length, int)
    return length


def redis_seconds(connection: redis.Redis) -> float:
    seconds, microseconds = connection.time()
    return seconds + microseconds / 1e6


def test_a_burst_of_tasks_rings_once(client: httpx.Client, redis_client: redis.Redis) -> None:
    began = redis_seconds(redis_client)
    for i in range(20):
        client.post("/v1/tasks", json={"input": f"text {i}"})

    # A bell is counted by its sender, a moment after it is there.
    count = re.compile(rf'embedq_bells_total{{model="{MODEL}"}} (\d+)')
    rung = wait_until(lambda: count.search(client.get("/metrics").text), message="no bell")
    believed_s = redis_seconds(redis_client) - began  # the first for a second, and each next one twice as long
    assert 1 <= int(rung[1]) <= 1 + math.log2(1 + believed_s)


def test_a_bell_carries_no_data(client: httpx.Client, redis_client: redis.Redis) -> None:
    client.post("/v1/tasks", json={"input": "a very private text"})

    wait_until(lambda: bells(redis_client), message="no bell")
    message = redis_client.lindex(bell_queue(MODEL), 0)

    assert isinstance(message, bytes)
    assert b"private" not in message
    assert b"embedq.bell" in message


def test_the_watchdog_replaces_a_lost_bell(client: httpx.Client, redis_client: redis.Redis) -> None:
    client.post("/v1/tasks", json={"input": "x"})
    wait_until(lambda: bells(redis_client), message="no bell")
    redis_client.delete(bell_queue(MODEL))

    wait_until(lambda: bells(redis_client), message="the lost bell was not replaced")


async def test_an_idle_service_rings_nobody(redis_url: str, worker: LedgerWorker) -> None:
    rung: list[str] = []
    settings = load_settings(redis_url=redis_url, served_name=MODEL)
    ledger = AsyncLedger.connect(redis_url)
    bells = BellThread(make_celery(settings), lambda model, _sent: rung.append(model))
    models = ServedModels(settings)
    ledger_watch = LedgerWatch(ledger, models, bells)

    await ledger_watch.look()
    await ledger_watch.look()
    bells.close()
    await ledger.close()

    assert models.live_workers() == {MODEL: 1}
    assert rung == []


def test_a_dead_broker_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[tuple[str, bool]] = []
    settings = load_settings(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    bells = BellThread(make_celery(settings), lambda model, sent: counted.append((model, sent)))

    for _ in range(3):
        bells.send_bell("m")
    wait_until(lambda: len(counted) == 3)
    bells.close()

    assert counted == [("m", False)] * 3
    assert len([record for record in caplog.records if record.name == "worker_config.wake_up"]) == 1

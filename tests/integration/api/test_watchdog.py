"""The watchdog and the bells over a real ledger: what one round ends, who rings, and that a lost bell is replaced."""

import math
import re
import signal

import httpx
import pytest
import redis

from api.served_models import ServedModels
from api.waiting.ledger_watch import LedgerWatch
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_tasks
from tasks.ledger.submit import submit
from tasks.ledger.task import State
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL
from tests.ledger_builders import new_task
from tests.processes import RedisServer, free_port, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import BellThread

OVERDUE = 1500
"""More than one look of the ledger ends: a round takes several."""


async def look(*ledgers: AsyncLedger, models: ServedModels) -> tuple[list[bool], list[str]]:
    """Whether Redis was known to be up after one round with each of these; whom they rang."""
    rung: list[str] = []
    settings = load_settings(served_name=MODEL)
    bells = BellThread(make_celery(settings), lambda model, _sent: rung.append(model))
    watches = {ledger: LedgerWatch(ledger, models, bells) for ledger in ledgers}
    known = []
    for ledger in ledgers:
        await watches[ledger].look()
        known.append(models.redis_up)
    bells.close()
    return known, rung


async def test_who_is_too_busy_for_several_rounds_knows_nothing_of_redis(private_redis: RedisServer) -> None:
    models = ServedModels(load_settings(served_name=MODEL))
    patient = AsyncLedger.connect(private_redis.url)
    busy = AsyncLedger.connect(private_redis.url, lag_s=lambda: 1.0)
    await look(patient, models=models)
    private_redis.send(signal.SIGSTOP)
    try:
        known, _ = await look(*[busy] * 5, models=models)
    finally:
        private_redis.send(signal.SIGCONT)
    await busy.close()
    await patient.close()
    assert known == [True, True, True, True, False]


async def test_one_round_ends_all_that_is_overdue(redis_url: str, redis_client: redis.Redis, ledger: Ledger) -> None:
    made = [new_task_id() for _ in range(OVERDUE)]
    for task_id in made:
        ledger.run(submit(new_task(task_id=task_id, queue=MODEL, deadline_in_ms=1)))
    began = redis_seconds(redis_client)
    wait_until(lambda: redis_seconds(redis_client) > began + 0.002)
    watching = AsyncLedger.connect(redis_url)

    await look(watching, models=ServedModels(load_settings(served_name=MODEL)))
    await watching.close()

    states = [task.state for task in ledger.run(read_tasks(made)) if task]
    assert states == [State.EXPIRED] * OVERDUE
    redis_client.flushall()  # to forget so many tasks one by one takes long


# ---- bells -----------------------------------------------------------------------------------------------------------


def bells(connection: redis.Redis) -> int:
    length = connection.llen(bell_queue(MODEL))
    assert isinstance(length, int)
    return length


def redis_seconds(connection: redis.Redis) -> float:
    seconds, microseconds = connection.time()
    return float(seconds + microseconds / 1e6)


def test_a_burst_of_tasks_rings_once(client: httpx.Client, redis_client: redis.Redis) -> None:
    began = redis_seconds(redis_client)
    for i in range(20):
        client.post("/v1/tasks", json={"input": f"text {i}"})

    # A bell is counted by its sender, a moment after it is there.
    count = re.compile(rf'embedq_bells_total{{model="{MODEL}"}} (\d+)')
    rung = wait_until(lambda: count.search(client.get("/metrics").text), message="no bell")
    believed_s = redis_seconds(redis_client) - began  # the first for a second, and each next one twice as long
    assert 1 <= int(rung[1]) <= 1 + math.log2(1 + believed_s)


def test_a_bell_carries_no_data_and_a_lost_one_is_replaced(client: httpx.Client, redis_client: redis.Redis) -> None:
    client.post("/v1/tasks", json={"input": "a very private text"})
    wait_until(lambda: bells(redis_client), message="no bell")
    message = redis_client.lindex(bell_queue(MODEL), 0)
    assert isinstance(message, bytes)
    assert (b"private" in message, b"embedq.bell" in message) == (False, True)

    redis_client.delete(bell_queue(MODEL))
    wait_until(lambda: bells(redis_client), message="the lost bell was not replaced")


async def test_an_idle_service_rings_nobody(redis_url: str, worker: LedgerWorker) -> None:
    ledger, models = AsyncLedger.connect(redis_url), ServedModels(load_settings(served_name=MODEL))
    _, rung = await look(ledger, ledger, models=models)
    await ledger.close()
    assert (models.live_workers(), rung) == ({MODEL: 1}, [])


def test_a_dead_broker_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[tuple[str, bool]] = []
    settings = load_settings(redis_url=f"redis://127.0.0.1:{free_port()}/0")
    ringing = BellThread(make_celery(settings), lambda model, sent: counted.append((model, sent)))

    for _ in range(3):
        ringing.send_bell("m")
    wait_until(lambda: len(counted) == 3)
    ringing.close()

    assert counted == [("m", False)] * 3
    assert len([record for record in caplog.records if record.name == "worker_config.wake_up"]) == 1

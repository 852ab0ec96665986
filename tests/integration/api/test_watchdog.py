"""The watchdog over a real ledger: one round ends everything that is overdue."""

import os
import signal
from collections.abc import Iterator

import pytest
import redis

from api.app import create_app
from api.served_models import ServedModels
from api.waiting.ledger_watch import LedgerWatch
from tasks.item import Options
from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.read import read_tasks
from tasks.ledger.submit import submit
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask, State
from tests.integration.api.served import MODEL
from tests.processes import RedisServer, wait_until
from worker_config.celery_app import make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import BellThread

OVERDUE = 5000
"""More than one machine can bring in the second between two rounds."""


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    opened = Ledger.connect(redis_url)
    yield opened
    opened.close()


def overdue_task() -> NewTask:
    return NewTask(
        task_id=new_task_id(),
        queue=MODEL,
        lane=Lane.ONLINE,
        owner="me",
        pieces=[NewPiece(items=1, cost=1, payload=b'["a"]')],
        options=Options(),
        ttl_ms=60_000,
        admission=Admission(max_backlog_s=1000),
        deadline_in_ms=1,
    )


def now_ms(connection: redis.Redis) -> int:
    seconds, microseconds = connection.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


async def test_who_is_too_busy_for_several_rounds_knows_nothing_of_redis(private_redis: RedisServer) -> None:
    settings = load_settings(redis_url=private_redis.url, served_name=MODEL)
    patient = AsyncLedger.connect(private_redis.url)
    ledger = AsyncLedger.connect(private_redis.url, lag_s=lambda: 1.0)
    models, bells = ServedModels(settings), BellThread(make_celery(settings), lambda _model, _sent: None)
    await LedgerWatch(patient, models, bells).look()
    ledger_watch = LedgerWatch(ledger, models, bells)
    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        known = []
        for _ in range(5):
            await ledger_watch.look()
            known.append(models.redis_up)
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)
    bells.close()
    await ledger.close()
    await patient.close()
    assert known == [True, True, True, True, False]


async def test_one_round_ends_all_that_is_overdue(redis_url: str, redis_client: redis.Redis, ledger: Ledger) -> None:
    tasks = [overdue_task() for _ in range(OVERDUE)]
    for task in tasks:
        ledger.run(submit(task))
    submitted_ms = now_ms(redis_client)
    wait_until(lambda: now_ms(redis_client) > submitted_ms + 1)
    parts = create_app(load_settings(redis_url=redis_url, compute="fake", served_name=MODEL)).state

    await parts.ledger_watch.look()
    await parts.ledger.close()

    states = [task.state for task in ledger.run(read_tasks([task.task_id for task in tasks])) if task]
    assert states == [State.EXPIRED] * OVERDUE

"""What every fault test needs: a Redis of its own, roles on it, and a client of the ledger."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tasks.ledger.client import Ledger
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, WorkerProcess, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import send_bell

QUICK: dict[str, Any] = {"lease_s": 2, "fake_tokens_per_s": 2_000}
"""Recovery takes moments instead of a quarter of a minute, and encoding long enough that a kill falls into it."""


@pytest.fixture
def client(private_redis: RedisServer) -> Iterator[LedgerClient]:
    with redis.Redis.from_url(private_redis.url) as connection:
        yield LedgerClient(Ledger(connection))


def with_patience(worker: WorkerProcess, **patience: float) -> WorkerProcess:
    """The same worker with less patience, by the names of `Patience`: a test of the usual one would take minutes."""
    worker.command = [sys.executable, "-m", "tests.faults.quick_worker", json.dumps(patience)]
    return worker


def ring(server: RedisServer, queue: str) -> None:
    """Rings, and returns when a worker's parent has heard it."""
    with server.client() as connection, make_celery(load_settings(redis_url=server.url)) as celery:
        send_bell(celery, queue)
        wait_until(lambda: not connection.llen(bell_queue(queue)), message="a bell is heard")

"""What every fault test needs: a Redis of its own, roles on it, and a client of the ledger."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tasks.ledger.client import Ledger
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, WorkerProcess

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

"""What every fault test needs: a Redis of its own, roles on it, and a client of the ledger."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.worker.process.hangs import Patience
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, WorkerProcess

QUICK: dict[str, Any] = {"lease_s": 2, "fake_tokens_per_s": 2_000}
"""Recovery takes moments instead of a quarter of a minute, and encoding long enough that a kill falls into it."""


@pytest.fixture
def client(private_redis: RedisServer) -> Iterator[LedgerClient]:
    with redis.Redis.from_url(private_redis.url) as connection:
        yield LedgerClient(Ledger(connection))


def with_patience(worker: WorkerProcess, patience: Patience) -> WorkerProcess:
    """The same worker with less patience: a test of the usual one would take minutes."""
    start = "import sys; from tasks.worker import __main__ as worker; from tasks.worker.process.hangs import Patience; "
    worker.command = [sys.executable, "-c", start + f"sys.exit(worker.main({patience!r}))"]
    return worker

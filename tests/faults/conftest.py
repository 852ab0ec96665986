"""What every fault test needs: a Redis of its own, roles on it, and a client of the ledger."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from stack.testing import RedisServer
from tasks.ledger.client import Ledger
from tests.ledger_client import LedgerClient

QUICK: dict[str, Any] = {"lease_s": 2, "fake_tokens_per_s": 2_000}
"""Recovery takes moments instead of a quarter of a minute, and encoding long enough that a kill falls into it."""


@pytest.fixture
def client(private_redis: RedisServer) -> Iterator[LedgerClient]:
    with redis.Redis.from_url(private_redis.url) as connection:
        yield LedgerClient(Ledger(connection))

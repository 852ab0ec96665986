"""A client of the ledger beside the worker under test."""

import pytest
import redis

from tasks.ledger.client import Ledger
from tests.ledger_client import LedgerClient


@pytest.fixture
def client(redis_client: "redis.Redis") -> LedgerClient:
    return LedgerClient(Ledger(redis_client))


@pytest.fixture(autouse=True)
def _key_leak_check() -> None:
    """Instead of the one of all integration tests, which empties Redis: the tests of a file may share a worker."""

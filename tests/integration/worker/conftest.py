"""A client of the ledger beside the worker under test."""

import pytest
import redis

from tasks.ledger.client import Ledger
from tests.ledger_client import LedgerClient


@pytest.fixture
def client(redis_client: "redis.Redis") -> LedgerClient:
    return LedgerClient(Ledger(redis_client))

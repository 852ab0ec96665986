"""A client of the ledger beside the worker under test."""

from collections.abc import Iterator

import pytest
import redis

from tasks.ledger.client import Ledger
from tests.key_leaks import fail_on_leaks
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles


@pytest.fixture
def client(redis_client: "redis.Redis") -> LedgerClient:
    return LedgerClient(Ledger(redis_client))


@pytest.fixture(autouse=True)
def _key_leak_check() -> None:
    """Instead of the one of all integration tests, which empties Redis: some files here share a worker."""


@pytest.fixture(scope="module")
def shared_roles(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """Roles that all tests of a file share, on a Redis that was empty before the first of them."""
    with redis_server.client() as connection:
        connection.flushall()
    with Roles(tmp_path_factory.mktemp("shared"), redis_server.url) as started:
        yield started
    fail_on_leaks(redis_server)


@pytest.fixture(scope="module")
def shared_client(redis_server: RedisServer) -> Iterator[LedgerClient]:
    """Of those roles."""
    with redis_server.client() as connection:
        yield LedgerClient(Ledger(connection))

"""The ledger's tests have a Redis of their own that does not wait for the disk: they make many thousands of calls."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from stack.testing import RedisServer
from tests.integration.ledger.driver import Driver


@pytest.fixture(scope="session")
def redis_server(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    server = start_redis(tmp_path_factory.mktemp("ledger-redis"))
    with server.client() as client:
        client.config_set("appendonly", "no")
    yield server
    server.stop()


@pytest.fixture
def driver(redis_client: redis.Redis) -> Driver:
    return Driver(redis_client)

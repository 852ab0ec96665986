"""The ledger's tests have a Redis of their own that does not wait for the disk: they make many thousands of calls."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.ledger.driver import Driver
from tests.link import Link
from tests.processes import RedisServer, free_port


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


@pytest.fixture
def failover(private_redis: RedisServer, tmp_path: Path) -> Iterator[tuple[Link, Callable[[], None]]]:
    """An address, and a failover behind it: the former master answers on what is connected to it, as a replica."""
    other = RedisServer(tmp_path / "other").start()
    try:
        with Link(private_redis.endpoint.port) as link:

            def fail_over() -> None:
                with private_redis.client() as client:
                    client.replicaof("127.0.0.1", free_port())
                link.target = other.endpoint.port

            yield link, fail_over
        with private_redis.client() as client:
            client.replicaof("NO", "ONE")
    finally:
        other.stop()

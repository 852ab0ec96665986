"""A Redis of these tests' own that keeps nothing, and a ledger on it whose clock stands still."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.processes import RedisServer
from tests.simulation.agreement import check_agreement
from tests.simulation.thin_client import MODEL, RATE, STAMP, Ledger


@pytest.fixture(scope="session")
def quick_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator["redis.Redis"]:
    server = RedisServer(Path(tmp_path_factory.mktemp("r")), unix_socket=True).start()
    with server.client() as client:
        client.config_set("appendonly", "no")
        yield client
    server.stop()


@pytest.fixture
def empty_redis(quick_server: "redis.Redis") -> Iterator["redis.Redis"]:
    yield quick_server
    quick_server.config_set("maxmemory", 0)
    quick_server.flushall()


@pytest.fixture
def ledger(empty_redis: "redis.Redis") -> Iterator[Ledger]:
    """Its queue is served at a known speed. Afterwards all sums agree."""
    ledger = prepared(Ledger(empty_redis))
    yield ledger
    if not ledger.tampered:
        check_agreement(ledger)


def prepared(ledger: Ledger) -> Ledger:
    ledger.set_sums(f"q:{MODEL}:state", rate=RATE, serves=STAMP)
    return ledger

"""A Redis of these tests' own that keeps nothing, and a ledger on it whose clock stands still."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.processes import RedisServer
from tests.simulation.invariants import check_agreement
from tests.simulation.thin_client import MODEL, RATE, STAMP, Ledger


@contextmanager
def quick_redis() -> Iterator["redis.Redis"]:
    """A client of a Redis of its own that keeps nothing."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), unix_socket=True).start()
        try:
            with server.client() as client:
                client.config_set("appendonly", "no")
                yield client
        finally:
            server.stop()


@contextmanager
def tested(ledger: Ledger) -> Iterator[Ledger]:
    """Its queue is served at a known speed. Afterwards all sums agree."""
    ledger.set_sums(f"q:{MODEL}:state", rate=RATE, serves=STAMP)
    yield ledger
    if not ledger.tampered:
        check_agreement(ledger)


@pytest.fixture(scope="session")
def quick_server() -> Iterator["redis.Redis"]:
    with quick_redis() as client:
        yield client


@pytest.fixture
def empty_redis(quick_server: "redis.Redis") -> Iterator["redis.Redis"]:
    yield quick_server
    quick_server.config_set("maxmemory", 0)
    quick_server.flushall()


@pytest.fixture
def ledger(empty_redis: "redis.Redis") -> Iterator[Ledger]:
    with tested(Ledger(empty_redis)) as ledger:
        yield ledger

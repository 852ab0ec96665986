"""The Celery parent of a worker outlives all that a Redis does: it never hangs, never dies, and hears bells again."""

import os
import signal
from pathlib import Path

import psutil
import pytest
import redis
from redis.exceptions import BusyLoadingError

from tasks.ledger.client import Ledger
from tests.faults.conftest import QUICK, ring
from tests.ledger_client import LedgerClient
from tests.link import Link
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

FOREIGN = {f"foreign:{number}": os.urandom(8192) for number in range(2000)}
"""Of a size that Redis answers LOADING several times: it looks at its connections after every 2 MiB."""


@pytest.mark.thorough
def test_the_parent_outlives_what_redis_does(private_redis: RedisServer, tmp_path: Path) -> None:
    with Link(private_redis.endpoint.port) as link, Roles(tmp_path, link.url) as roles:
        worker = roles.worker(**QUICK)
        child = worker.child_pid

        def works(what: str) -> None:
            with private_redis.client() as connection:
                client = LedgerClient(Ledger(connection))
                client.completed(client.submit([what]))
                ring(private_redis, client.model)
            assert (worker.running, worker.child_pid) == (True, child), what

        def ports() -> set[int]:
            return {connection.laddr.port for connection in psutil.Process(worker.pid).net_connections("tcp")}

        works("a healthy Redis")
        before = ports()
        link.silence()
        wait_until(lambda: ports() - before, message="the parent connects anew")
        works("half-open connections")
        before = ports()
        private_redis.send(signal.SIGSTOP)
        try:
            wait_until(lambda: ports() - before, message="the parent connects anew")
        finally:
            private_redis.send(signal.SIGCONT)
        works("a Redis that stood still")
        _load_slowly(private_redis)
        works("a Redis that loads its data")
        assert "Traceback" not in worker.log()


def _load_slowly(server: RedisServer) -> None:
    with server.client() as connection:
        connection.mset(FOREIGN)
        connection.bgrewriteaof()
        wait_until(lambda: not connection.info("persistence")["aof_rewrite_in_progress"], message="a short log")
        server.kill()
        server.command += ["--key-load-delay", "2000"]  # microseconds
        server.launch()
        wait_until(lambda: _answer(connection) == "LOADING", message="it loads")
        wait_until(lambda: _answer(connection) == "PONG", message="it has loaded")
        connection.delete(*FOREIGN)


def _answer(connection: redis.Redis) -> str:
    try:
        connection.ping()
    except BusyLoadingError:
        return "LOADING"
    except redis.ConnectionError:
        return ""
    return "PONG"

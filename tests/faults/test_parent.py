"""The Celery parent of a worker outlives all that a Redis does: it never hangs, never dies, and hears bells again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from redis.exceptions import BusyLoadingError

from tasks.ledger.client import Ledger
from tests.faults.conftest import QUICK, ring
from tests.ledger_client import LedgerClient
from tests.link import Link
from tests.processes import RedisServer, Roles, WorkerProcess, free_port, wait_until

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
                wait_until(lambda: _waits(connection.client_list()), message=f"a parent that waits: {what}")
            assert (worker.running, worker.child_pid) == (True, child), what

        works("a healthy Redis")
        with _connects_anew(worker):
            link.silence()
        works("half-open connections")
        private_redis.send(signal.SIGSTOP)
        try:
            with _connects_anew(worker):
                pass
        finally:
            private_redis.send(signal.SIGCONT)
        works("a Redis that stood still")
        _lose_the_master(private_redis)
        works("a replica without its master")
        _load_slowly(private_redis)
        works("a Redis that loads its data")
        assert "Traceback" not in worker.log()


def _waits(clients: list[dict[str, str]]) -> bool:
    return any(client["cmd"] == "brpop" and "b" in client["flags"] for client in clients)


@contextmanager
def _connects_anew(worker: WorkerProcess) -> Iterator[None]:
    """Returns when the parent has a connection that it did not have before."""

    def ports() -> set[int]:
        return {connection.laddr.port for connection in psutil.Process(worker.pid).net_connections("tcp")}

    before = ports()
    yield
    wait_until(lambda: ports() - before, message="the parent connects anew")


def _lose_the_master(server: RedisServer) -> None:
    """Returns when the parent was refused and has tried again: Redis 6.2 refuses its BRPOP, 7.0 its PING already."""
    with server.client() as connection:

        def waits_while_it_is_lost() -> bool:
            """A parent with a bell in hand would not ask, and so not be refused, before Redis is back."""
            with connection.pipeline() as both:
                clients, _ = both.client_list().replicaof("127.0.0.1", free_port()).execute()
            if not _waits(clients):
                connection.replicaof("NO", "ONE")
            return _waits(clients)

        def refused() -> int:
            commands = connection.info("commandstats")
            return sum(commands.get(f"cmdstat_{name}", {}).get("rejected_calls", 0) for name in ("brpop", "ping"))

        connection.config_set("replica-serve-stale-data", "no")
        before = refused()
        wait_until(waits_while_it_is_lost, message="a parent that waits for a bell")
        wait_until(lambda: refused() > before + 1, message="the parent is refused and tries on")
        connection.replicaof("NO", "ONE")


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

"""The Celery parent of a worker outlives all that a Redis does: it never hangs, never dies, and hears bells again."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import redis
from redis.exceptions import BusyLoadingError, MasterDownError

from tasks.ledger.client import Ledger
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.link import Link
from tests.processes import RedisServer, Roles, WorkerProcess, free_port, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import send_bell

pytestmark = pytest.mark.faults

SLOW_LOAD = ["--key-load-delay", "2000"]  # microseconds
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
                celery = make_celery(load_settings(redis_url=private_redis.url))
                send_bell(celery, client.model)
                celery.close()
                wait_until(lambda: connection.llen(bell_queue(client.model)) == 0, message=f"a bell is heard: {what}")
                wait_until(lambda: _waits_for_a_bell(connection), message=f"the parent waits for the next bell: {what}")
            assert (worker.running, worker.child_pid) == (True, child), what

        works("a healthy Redis")
        with _connects_anew(worker):
            link.silence()
        works("half-open connections")
        with _standing_still(private_redis), _connects_anew(worker):
            pass
        works("a Redis that stood still")
        with _without_master(private_redis):
            _wait_for_refusals(private_redis)
        works("a replica without its master")
        _load_slowly(private_redis)
        works("a Redis that loads its data")
        assert "Traceback" not in worker.log()


def _waits_for_a_bell(connection: redis.Redis) -> bool:
    return _are_waiting(connection.client_list())


def _are_waiting(clients: list[dict[str, str]]) -> bool:
    return any(client["cmd"] == "brpop" and "b" in client["flags"] for client in clients)


@contextmanager
def _connects_anew(worker: WorkerProcess) -> Iterator[None]:
    """Returns when the parent has a connection that it did not have before."""
    before = _ports(worker)
    yield
    wait_until(lambda: _ports(worker) - before, message="the parent connects anew")


def _ports(worker: WorkerProcess) -> set[int]:
    return {connection.laddr.port for connection in psutil.Process(worker.pid).net_connections("tcp")}


@contextmanager
def _standing_still(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@contextmanager
def _without_master(server: RedisServer) -> Iterator[None]:
    with server.client() as connection:
        connection.config_set("replica-serve-stale-data", "no")
        wait_until(lambda: _loses_master_while_waiting(connection), message="a parent that waits for a bell")
        with pytest.raises(MasterDownError):
            connection.get("x")
        try:
            yield
        finally:
            connection.replicaof("NO", "ONE")


def _wait_for_refusals(server: RedisServer) -> None:
    """Returns when the parent was refused and has tried again: Redis 6.2 refuses its BRPOP, 7.0 its PING already."""
    with server.client() as connection:

        def refused() -> int:
            commands = connection.info("commandstats")
            return sum(commands.get(f"cmdstat_{name}", {}).get("rejected_calls", 0) for name in ("brpop", "ping"))

        before = refused()
        wait_until(lambda: refused() > before + 1, message="the parent is refused and tries on")


def _loses_master_while_waiting(connection: redis.Redis) -> bool:
    """A parent with a bell in hand would not ask, and so not be refused, before Redis is back."""
    with connection.pipeline() as both:
        both.client_list()
        both.replicaof("127.0.0.1", free_port())
        clients, _ = both.execute()
    if _are_waiting(clients):
        return True
    connection.replicaof("NO", "ONE")
    return False


def _load_slowly(server: RedisServer) -> None:
    with server.client() as connection:
        connection.mset(FOREIGN)
        connection.bgrewriteaof()
        wait_until(lambda: not connection.info("persistence")["aof_rewrite_in_progress"], message="a short log")
        server.kill()
        server.command += SLOW_LOAD
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

"""`kill -9` of every kind of process, a Redis that loads or stands still, restarts and a failover, under load."""

import signal
from pathlib import Path

import pytest

from tasks.ledger.client import Ledger
from tests.faults.conftest import QUICK, ring
from tests.faults.load import Load, assert_nothing_lost
from tests.ledger_client import LedgerClient
from tests.processes import RedisGroup, RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

BETWEEN = 60
"""Texts accepted between two kills: the fault falls into running work, however fast the machine is."""
SLOW = QUICK | {"fake_tokens_per_s": 300}
"""Texts are encoded slower than they come in, also on a slow machine: the worker is at work when it is killed."""
ELSEWHERE = "redis://nobody/0"
"""Sentinels say where the master is."""


def _is_working(client: LedgerClient) -> None:
    wait_until(lambda: client.overview().leases > 0, message="a claim in flight")


def test_everything_is_killed_in_turn(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**SLOW) for _ in range(2)]
    with Load(api, name="all") as load:
        load.more(BETWEEN)
        _is_working(client)
        workers[0].kill()
        load.more(BETWEEN)
        _is_working(client)
        workers[1].kill_child()
        private_redis.kill()
        load.refused()
        private_redis.command += ["--key-load-delay", "2000"]  # microseconds: it answers LOADING for a while
        private_redis.start()
        workers[0].start()
        load.more(BETWEEN)
        private_redis.send(signal.SIGSTOP)
        try:
            load.refused()
        finally:
            private_redis.send(signal.SIGCONT)
        load.more(BETWEEN)
        api.kill()
        workers[1].kill()
        load.refused()
        api.start()
        workers[1].start()
        load.more(BETWEEN)
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"
    ring(private_redis, client.model)
    assert "Traceback" not in "".join(worker.log() for worker in workers)


def test_a_rolling_restart_loses_and_convicts_nobody(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="rolling") as load:
        for worker in workers:
            load.more(BETWEEN)
            assert worker.stop() == 0
            worker.start()
    assert_nothing_lost(client, load)
    # Everything was given back in time, so no lease ran out and no item became a suspect.
    assert client.counter("lost_leases") == 0
    assert client.counter("failed_items") == 0


def test_sentinels_fail_over_under_load_and_nothing_accepted_is_lost(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    private_redis.stop()  # it says whether there is a Redis program at all
    with RedisGroup(tmp_path / "group") as group, Roles(tmp_path, ELSEWHERE, **group.settings) as roles:
        api, worker = roles.api(redis_ack="replica"), roles.worker(**QUICK)
        child, ledger = worker.child_pid, Ledger.connect(ELSEWHERE, sentinels=group.named)
        with Load(api, name="failover") as load:
            load.more(BETWEEN)
            group.fail_over()
            group.rejoin()
            load.more(BETWEEN)
        with group.master.client() as client:
            consumes = lambda: any(connection["cmd"] == "brpop" for connection in client.client_list())  # noqa: E731
            wait_until(consumes, message="the worker's parent at the new master")
        assert_nothing_lost(LedgerClient(ledger), load)
        assert (worker.running, worker.child_pid) == (True, child)
        assert "Traceback" not in worker.log() + api.log()
        ledger.close()

"""`kill -9` of every kind of process, repeatedly, under load."""

import pytest

from tests.faults.checks import assert_nothing_lost
from tests.faults.conftest import QUICK
from tests.faults.load import Load
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

BETWEEN = 60
"""Texts accepted between two kills: the fault falls into running work, however fast the machine is."""
SLOW = QUICK | {"fake_tokens_per_s": 300}
"""Texts are encoded slower than they come in, also on a slow machine: the worker is at work when it is killed."""


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
        private_redis.start()
        workers[0].start()
        load.more(BETWEEN)
        api.kill()
        workers[1].kill()
        load.refused()
        api.start()
        workers[1].start()
        load.more(BETWEEN)
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"


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

"""`kill -9` of every kind of process, repeatedly, under load."""

import pytest

from tests.faults.checks import assert_nothing_lost
from tests.faults.conftest import QUICK
from tests.faults.load import Load
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

KILLS = 3
BETWEEN = 60
"""Texts accepted between two kills: the fault falls into running work, however fast the machine is."""
SLOW = QUICK | {"fake_tokens_per_s": 150}
"""Texts are encoded slower than they come in, also on a slow machine: the worker is at work when it is killed."""


def _is_working(client: LedgerClient) -> None:
    wait_until(lambda: client.overview().leases > 0, message="a claim in flight")


@pytest.mark.thorough
def test_the_model_child_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, worker = private_roles.api(), private_roles.worker(**SLOW)
    with Load(api, name="child") as load:
        for _ in range(KILLS):
            load.more(BETWEEN)
            _is_working(client)
            worker.kill_child()
            worker.wait_ready()
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"


@pytest.mark.thorough
def test_the_worker_parent_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, worker = private_roles.api(), private_roles.worker(**SLOW)
    with Load(api, name="parent") as load:
        for _ in range(KILLS):
            load.more(BETWEEN)
            _is_working(client)
            worker.kill()
            worker.start()
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"


def test_the_web_tier_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, _ = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="api") as load:
        for _ in range(KILLS):
            load.more(BETWEEN)
            api.kill()
            load.refused()
            api.start()
    assert_nothing_lost(client, load)


def test_redis_is_killed(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api, _ = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="redis") as load:
        for _ in range(KILLS):
            load.more(BETWEEN)
            private_redis.kill()
            # It starts again within milliseconds, and the API tries twice: nobody need notice such a kill.
            load.refused()
            private_redis.start()
    assert_nothing_lost(client, load)


def test_everything_is_killed_in_turn(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="all") as load:
        load.more(BETWEEN)
        workers[0].kill()
        load.more(BETWEEN)
        workers[1].kill_child()
        private_redis.kill()
        private_redis.start()
        workers[0].start()
        load.more(BETWEEN)
        api.kill()
        workers[1].kill()
        api.start()
        workers[1].start()
        load.more(BETWEEN)
    assert_nothing_lost(client, load)


def test_a_rolling_restart_loses_and_convicts_nobody(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="rolling") as load:
        for worker in workers * 2:
            load.more(BETWEEN)
            assert worker.stop() == 0
            worker.start()
    assert_nothing_lost(client, load)
    # Everything was given back in time, so no lease ran out and no item became a suspect.
    assert client.counter("lost_leases") == 0
    assert client.counter("failed_items") == 0

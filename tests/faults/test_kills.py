"""`kill -9` of every kind of process, repeatedly, under load."""

import pytest

from tests.faults.checks import assert_nothing_lost
from tests.faults.conftest import QUICK
from tests.faults.load import Load
from tests.harness import RedisServer, Roles, wait_until
from tests.ledger_client import LedgerClient

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]

KILLS = 3
BETWEEN = 60
"""Texts accepted between two kills: the fault falls into running work, however fast the machine is."""


def _accepts_more(load: Load, texts: int = BETWEEN) -> None:
    goal = len(load.accepted) + texts
    wait_until(lambda: len(load.accepted) >= goal, timeout_s=60, message=f"{goal} accepted texts")


def _is_working(client: LedgerClient) -> None:
    wait_until(lambda: client.overview().leases > 0, message="a claim in flight")


def test_the_model_child_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, worker = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="child") as load:
        for _ in range(KILLS):
            _accepts_more(load)
            _is_working(client)
            worker.kill_child()
            worker.wait_ready()
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"


def test_the_worker_parent_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, worker = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="parent") as load:
        for _ in range(KILLS):
            _accepts_more(load)
            _is_working(client)
            worker.kill()
            worker.start()
    assert_nothing_lost(client, load)
    assert client.counter("lost_leases") > 0, "no kill fell into work"


def test_the_web_tier_is_killed(private_roles: Roles, client: LedgerClient) -> None:
    api, _ = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="api") as load:
        for _ in range(KILLS):
            _accepts_more(load)
            api.kill()
            api.start()
    assert load.retries > 0
    assert_nothing_lost(client, load)


def test_redis_is_killed(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api, _ = private_roles.api(), private_roles.worker(**QUICK)
    with Load(api, name="redis") as load:
        for _ in range(KILLS):
            _accepts_more(load)
            private_redis.kill()
            private_redis.start()
    assert load.retries > 0, "no kill was noticed"
    assert_nothing_lost(client, load)


def test_everything_is_killed_in_turn(private_redis: RedisServer, private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="all") as load:
        _accepts_more(load)
        workers[0].kill()
        _accepts_more(load)
        workers[1].kill_child()
        private_redis.kill()
        private_redis.start()
        workers[0].start()
        _accepts_more(load)
        api.kill()
        workers[1].kill()
        api.start()
        workers[1].start()
        _accepts_more(load)
    assert_nothing_lost(client, load)


def test_a_rolling_restart_loses_and_convicts_nobody(private_roles: Roles, client: LedgerClient) -> None:
    api = private_roles.api()
    workers = [private_roles.worker(**QUICK) for _ in range(2)]
    with Load(api, name="rolling") as load:
        for worker in workers * 2:
            _accepts_more(load)
            assert worker.stop() == 0
            worker.start()
    assert_nothing_lost(client, load)
    # Everything was given back in time, so no lease ran out and no item became a suspect.
    assert client.counter("lost_leases") == 0
    assert client.counter("failed_items") == 0

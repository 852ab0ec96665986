"""What is said of a Redis: each setting with which accepted work may be lost, and the fix."""

from typing import Any

import pytest

from tasks.ledger.redis_checks import Check, RedisFacts
from worker_config.redis_connection import RedisAck

GOOD: dict[str, Any] = {
    "redis_version": "6.2.14",
    "redis_mode": "standalone",
    "aof_enabled": 1,
    "maxmemory_policy": "noeviction",
    "connected_slaves": 2,
    "slave0": {"state": "online"},
    "slave1": {"state": "online"},
}


def checks(info: dict[str, Any], appendfsync: str | None = "always", ack: RedisAck = "local") -> dict[str, Check]:
    return {check.name: check for check in RedisFacts(GOOD | info, appendfsync).checks(ack)}


@pytest.mark.parametrize("ack", ["local", "replica"])
def test_nothing_is_to_be_done_with_a_good_one(ack: RedisAck) -> None:
    found = checks({}, ack=ack)
    assert {check.fine for check in found.values()} == {True}
    assert {check.advice for check in found.values()} == {""}


@pytest.mark.parametrize(
    ("info", "name", "value", "advice"),
    [
        ({"redis_version": "5.0.7"}, "version", "redis 5.0.7", "6.2"),
        ({"redis_version": "6.0.16"}, "version", "redis 6.0.16", "6.2"),
        ({"redis_mode": "cluster"}, "mode", "cluster", "cluster-enabled no"),
        ({"aof_enabled": 0}, "appendonly", "no", "CONFIG SET appendonly yes"),
        (
            {"maxmemory_policy": "allkeys-lru"},
            "maxmemory-policy",
            "allkeys-lru",
            "CONFIG SET maxmemory-policy noeviction",
        ),
    ],
)
def test_a_setting_that_loses_work_comes_with_the_fix(info: dict[str, Any], name: str, value: str, advice: str) -> None:
    found = checks(info)
    assert [check.name for check in found.values() if not check.fine] == [name]
    assert found[name].value == value
    assert advice in found[name].advice


@pytest.mark.parametrize(("value", "fine"), [("always", True), ("everysec", True), ("no", False)])
def test_when_the_log_is_on_the_disk(value: str, fine: bool) -> None:
    check = checks({}, appendfsync=value)["appendfsync"]
    assert (check.fine, "CONFIG SET appendfsync always" in check.advice) == (fine, value != "always")


@pytest.mark.parametrize(
    ("states", "ack", "fine", "value", "advice"),
    [
        ([], "local", True, "0", ""),
        ([], "replica", False, "0", "start a replica"),
        (["send_bulk"], "replica", False, "0", "start a replica"),
        (["online"], "replica", True, "1", "run two"),
        (["online", "online"], "replica", True, "2", ""),
    ],
)
def test_replicas_count_that_could_confirm(
    states: list[str], ack: RedisAck, fine: bool, value: str, advice: str
) -> None:
    info = {"connected_slaves": len(states)} | {f"slave{n}": {"state": state} for n, state in enumerate(states)}
    check = checks(info, ack=ack)["replicas"]
    assert (check.fine, check.value) == (fine, value)
    assert check.advice.startswith(advice)
    assert bool(check.advice) == bool(advice)


@pytest.mark.parametrize(("ahead_s", "fine"), [(0.2, True), (-0.2, True), (3.0, False), (-3.0, False)])
def test_clocks_that_differ(ahead_s: float, fine: bool) -> None:
    check = {check.name: check for check in RedisFacts(GOOD, ahead_s=ahead_s).checks("local")}["clock"]
    assert check.fine is fine
    assert ("ahead of" in check.detail) == (ahead_s > 0)


def test_what_a_hosted_redis_does_not_tell_is_left_to_people() -> None:
    found = {check.name: check for check in RedisFacts({}).checks("replica")}
    assert {name for name, check in found.items() if check.value is None} == found.keys() - {"clock"}
    assert all(check.fine for check in found.values())
    assert all("see for yourself" in check.advice for name, check in found.items() if name != "clock")

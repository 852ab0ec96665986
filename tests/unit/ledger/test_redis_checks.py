"""What is said of a Redis: each setting with which accepted work may be lost, and the fix."""

from typing import Any

import pytest

from tasks.ledger.redis_checks import Check, RedisFacts

GOOD: dict[str, Any] = {
    "redis_version": "6.2.14",
    "redis_mode": "standalone",
    "aof_enabled": 1,
    "maxmemory_policy": "noeviction",
    "connected_slaves": 2,
    "slave0": {"state": "online"},
    "slave1": {"state": "online"},
}


def checks(info: dict[str, Any], ack: Any = "local") -> dict[str, Check]:
    facts = RedisFacts(GOOD | info, info.get("appendfsync", "always"))
    return {check.name: check for check in facts.checks(ack)}


@pytest.mark.parametrize(
    ("info", "name", "value", "advice"),
    [
        ({}, "", "", ""),
        ({"redis_version": "5.0.7"}, "version", "redis 5.0.7", "6.2"),
        ({"redis_version": "6.0.16"}, "version", "redis 6.0.16", "6.2"),
        ({"redis_mode": "cluster"}, "mode", "cluster", "cluster-enabled no"),
        ({"appendfsync": "no"}, "appendfsync", "no", "CONFIG SET appendfsync always"),
        ({"aof_enabled": 0}, "appendonly", "no", "CONFIG SET appendonly yes"),
        ({"maxmemory_policy": "allkeys-lru"}, "maxmemory-policy", "allkeys-lru", "maxmemory-policy noeviction"),
    ],
)
def test_a_setting_that_loses_work_comes_with_the_fix(info: dict[str, Any], name: str, value: str, advice: str) -> None:
    found = checks(info)
    assert [(each.name, each.value) for each in found.values() if not each.fine] == ([(name, value)] if name else [])
    assert [each.name for each in found.values() if each.advice] == ([name] if name else [])
    assert not name or advice in found[name].advice


def test_replicas_count_that_could_confirm() -> None:
    for states, ack, fine, advice in (
        ((), "local", True, ""),
        (("send_bulk",), "replica", False, "start a replica"),
        (("online",), "replica", True, "run two"),
        (("online", "online"), "replica", True, ""),
    ):
        info = {"connected_slaves": len(states)} | {f"slave{n}": {"state": state} for n, state in enumerate(states)}
        check = checks(info, ack=ack)["replicas"]
        assert (check.fine, check.value) == (fine, str(states.count("online")))
        assert (check.advice != "", check.advice[: len(advice)]) == (advice != "", advice)


def test_clocks_that_differ_and_what_a_hosted_redis_does_not_tell() -> None:
    for ahead_s, fine in ((0.2, True), (-0.2, True), (3.0, False), (-3.0, False)):
        clock = [*RedisFacts(GOOD, ahead_s=ahead_s).checks("local")][-1]
        assert (clock.name, clock.fine, "ahead of" in clock.detail) == ("clock", fine, ahead_s > 0)
    *found, _ = RedisFacts({}).checks("replica")
    assert all(check.fine and check.value is None and "see for yourself" in check.advice for check in found)

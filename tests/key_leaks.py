"""The key-leak check: whatever a test did, only keys that expire or that live for ever by design may remain.

First the test's tasks are forgotten and its records removed; then a far future is watched, as the
service itself would do in time: that must be enough to make every lease, deadline, record and dead worker vanish. What
is still there without a TTL is a leak.
"""

import re
from typing import Any

import msgpack
import pytest
import redis

from tasks.ledger.cancel import forget
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import watch
from tasks.ledger.packed import numbers
from tasks.ledger.read import read_task
from tasks.ledger.scripts import Operation
from tests.processes import RedisServer

# What redis_keys says of queues and of all.
_PERMANENT = re.compile(r"[^:]+:(schema|storage|litter|job-order|models|references|memory|changes|q:.+:(state|counts))")
# Celery's transport: declared queues, bells nobody heard, and what its killed consumers held. Bells carry no work.
_TRANSPORT = re.compile(r"_kombu\.binding.*|embedq\.bell\..*|unacked.*", re.DOTALL)
_TASK = re.compile(r"[^:]+:task:(?P<id>.+)")
_CHANGES = re.compile(r"(?P<root>[^:]+):changes")
_STATE = re.compile(r"[^:]+:q:(?P<queue>.+):state")

FAR_FUTURE_MS = 10 * 365 * 86_400_000
"""Beyond every lease and deadline, also those of tests that move the clock."""


def fail_on_leaks(server: RedisServer) -> None:
    """Fails the test that has left keys there. Every role must have stopped before."""
    with server.client() as client:
        leaks = leaked_keys(client)
    if leaks:
        pytest.fail(f"{len(leaks)} keys without a TTL are left: {', '.join(leaks[:20])}")


def leaked_keys(client: redis.Redis) -> list[str]:
    """Names of the keys that will never go away, sorted; empties the ledger of open tasks on the way.

    Every role must have stopped before: a live worker rightly holds keys.
    """
    client.config_set("maxmemory", 0)  # a test may have filled it
    ledger = Ledger(client)
    _forget_tasks(ledger)
    _remove_records(ledger)
    _watch_far_future(ledger)
    return sorted(
        key for key in _lasting_keys(client) if not _PERMANENT.fullmatch(key) and not _TRANSPORT.fullmatch(key)
    )


def _forget_tasks(ledger: Ledger) -> None:
    for key in _lasting_keys(ledger.client):
        if found := _TASK.fullmatch(key):
            task = ledger.run(read_task(found["id"]))
            assert task is not None, f"{key} holds no task"
            ledger.run(forget(task.queue, task.id))


def _remove_records(ledger: Ledger) -> None:
    client: Any = ledger.client
    for key in _lasting_keys(client):
        if found := _CHANGES.fullmatch(key):
            for kind in map(bytes.decode, client.hkeys(key)):
                prefix = f"{found['root']}:{kind}:"
                for name in list(client.scan_iter(f"{prefix}*")):
                    record = (kind, name.decode().removeprefix(prefix), "")
                    ledger.run(Operation(bool, "record_remove", "", record))


def _watch_far_future(ledger: Ledger) -> None:
    client: Any = ledger.client
    ledger.clock_offset_ms = FAR_FUTURE_MS
    for key in _lasting_keys(client):
        if found := _STATE.fullmatch(key):
            # As if somebody had looked at the clock all the time: of a standstill no lease ends.
            state = numbers(client.get(key))
            client.set(key, msgpack.packb({name: number for name, number in state.items() if name != "looked"}))
            before, pulse = None, ledger.run(watch(found["queue"]))
            while pulse.leases or pulse.more:  # one call ends a few only, so that it stays short
                assert pulse != before, f"{pulse.leases} leases of {found['queue']} never end"
                before, pulse = pulse, ledger.run(watch(found["queue"]))


def _lasting_keys(client: redis.Redis) -> list[str]:
    names = list(client.scan_iter(count=1000))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.ttl(name)
    return [name.decode() for name, ttl in zip(names, pipeline.execute(), strict=True) if ttl == -1]

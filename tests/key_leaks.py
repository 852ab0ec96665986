"""The key-leak check: whatever a test did, only keys that expire or that live for ever by design may remain.

First the test's open tasks are forgotten and its records removed; then a far future is watched,
as the service itself would do in time: that must be enough to make every lease, deadline and dead worker vanish. What
is still there without a TTL is a leak.
"""

import re

import redis

from tasks.ledger.executor import Ledger
from tasks.ledger.operations import Operation, forget, watch

# "for ever" in the table of tasks.ledger.keys.
_PERMANENT = re.compile(
    r"[^:]+:(schema|storage|litter|changes|memory|ingestion-order|models|references|reserved|q:.+:state)"
)
# Celery's transport: declared queues, bells nobody heard, and what its killed consumers held. Bells carry no work.
_TRANSPORT = re.compile(r"_kombu\.binding.*|embedq\.bell\..*|unacked.*", re.DOTALL)
_TASK = re.compile(r"(?P<root>[^:]+):task:(?P<id>.+)")
_CHANGES = re.compile(r"(?P<root>[^:]+):changes")
_STATE = re.compile(r"(?P<root>[^:]+):q:(?P<model>.+):state")

FAR_FUTURE_MS = 10 * 365 * 86_400_000
"""Beyond every lease and deadline, also those of tests that move the clock."""

_NO_TTL = -1


def leaked_keys(client: redis.Redis) -> list[str]:
    """Names of the keys that will never go away, sorted; empties the ledger of open tasks on the way.

    Every role must have stopped before: a live worker rightly holds keys.
    """
    _forget_open_tasks(client)
    _remove_records(client)
    _watch_far_future(client)
    return sorted(
        key for key in _lasting_keys(client) if not _PERMANENT.fullmatch(key) and not _TRANSPORT.fullmatch(key)
    )


def _forget_open_tasks(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if (found := _TASK.fullmatch(key)) is None:
            continue
        model = client.hget(key, "q")
        assert isinstance(model, bytes), f"{key} is a task that names no queue"
        Ledger(client, root=found["root"]).run(forget(model.decode(), found["id"]))


def _remove_records(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if found := _CHANGES.fullmatch(key):
            ledger = Ledger(client, root=found["root"])
            for kind in [bytes(name).decode() for name in client.hkeys(key)]:  # type: ignore[arg-type]
                prefix = f"{found['root']}:{kind}:"
                for name in list(client.scan_iter(f"{prefix}*")):
                    record = (kind, name.decode().removeprefix(prefix))
                    ledger.run(Operation("record_remove", "", record, bool))


def _watch_far_future(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if found := _STATE.fullmatch(key):
            client.hdel(key, "last")  # as if somebody had looked at the clock all the time
            ledger = Ledger(client, root=found["root"], clock_offset_ms=FAR_FUTURE_MS)
            # One call ends a few leases only, so that it stays short; each call must end at least one.
            leases = ledger.run(watch(found["model"])).leases
            for _ in range(leases):
                leases = ledger.run(watch(found["model"])).leases
            assert leases == 0, f"{leases} leases of {found['model']} never end"


def _lasting_keys(client: redis.Redis) -> list[str]:
    names = list(client.scan_iter(count=1000))
    pipeline = client.pipeline(transaction=False)
    for name in names:
        pipeline.ttl(name)
    return [name.decode() for name, ttl in zip(names, pipeline.execute(), strict=True) if ttl == _NO_TTL]

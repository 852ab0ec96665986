"""The key-leak check: whatever a test did, only keys that expire or that live for ever by design may remain.

First the test's open tasks are forgotten and its files that would never expire deleted; then a far future is watched,
as the service itself would do in time: that must be enough to make every lease, deadline and dead worker vanish. What
is still there without a TTL is a leak.
"""

import re

import redis

from tasks.ledger.executor import Ledger
from tasks.ledger.operations import forget, watch
from tasks.records.batches import close_batch, open_batches
from tasks.records.files import delete_file
from tasks.records.ingestion_operations import Move, close_ingestion, move_ingestion, open_ingestions
from tasks.records.ingestions import IngestionStatus

# "for ever" in the table of tasks.ledger.keys.
_PERMANENT = re.compile(
    r"[^:]+:(schema|storage|litter|ingestion-order|keys|purged|models|references|reserved|q:.+:state)"
)
# Celery's transport: declared queues, bells nobody heard, and what its killed consumers held. Bells carry no work.
_TRANSPORT = re.compile(r"_kombu\.binding.*|embedq\.bell\..*|unacked.*", re.DOTALL)
_TASK = re.compile(r"(?P<root>[^:]+):task:(?P<id>.+)")
_BATCHES = re.compile(r"(?P<root>[^:]+):open-batches")
_INGESTIONS = re.compile(r"(?P<root>[^:]+):open-ingestions")
_FILE = re.compile(r"(?P<root>[^:]+):file:(?P<id>.+)")
_STATE = re.compile(r"(?P<root>[^:]+):q:(?P<model>.+):state")

FAR_FUTURE_MS = 10 * 365 * 86_400_000
"""Beyond every lease and deadline, also those of tests that move the clock."""

_NO_TTL = -1
_MANY = 100_000


def leaked_keys(client: redis.Redis) -> list[str]:
    """Names of the keys that will never go away, sorted; empties the ledger of open tasks on the way.

    Every role must have stopped before: a live worker rightly holds keys.
    """
    _close_batches(client)
    _end_ingestions(client)
    _forget_open_tasks(client)
    _delete_files(client)
    _watch_far_future(client)
    return sorted(
        key for key in _lasting_keys(client) if not _PERMANENT.fullmatch(key) and not _TRANSPORT.fullmatch(key)
    )


def _close_batches(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if (found := _BATCHES.fullmatch(key)) is not None:
            ledger = Ledger(client, root=found["root"])
            for batch_id in ledger.run(open_batches(_MANY)):
                ledger.run(close_batch(batch_id, deleted=True))


def _end_ingestions(client: redis.Redis) -> None:
    end = Move(only_from=[s for s in IngestionStatus if not s.terminal], to=IngestionStatus.CANCELLED)
    for key in _lasting_keys(client):
        if (found := _INGESTIONS.fullmatch(key)) is not None:
            ledger = Ledger(client, root=found["root"])
            for ingestion_id in ledger.run(open_ingestions(_MANY)):
                ledger.run(move_ingestion(ingestion_id, end))
                ledger.run(close_ingestion(ingestion_id, deleted=True))


def _forget_open_tasks(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if (found := _TASK.fullmatch(key)) is None:
            continue
        model = client.hget(key, "q")
        assert isinstance(model, bytes), f"{key} is a task that names no queue"
        Ledger(client, root=found["root"]).run(forget(model.decode(), found["id"]))


def _delete_files(client: redis.Redis) -> None:
    for key in _lasting_keys(client):
        if found := _FILE.fullmatch(key):
            Ledger(client, root=found["root"]).run(delete_file(found["id"]))


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

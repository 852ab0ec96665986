"""The key-leak check itself: it lets through what is allowed, and nothing else."""

import pytest
import redis

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.ids import new_task_id
from tasks.ledger.submit import submit
from tasks.ledger.task import NewPiece, NewTask
from tests.key_leaks import leaked_keys
from tests.ledger_builders import new_task

MODEL = "org/model:v1"


def a_task(pieces: int = 1) -> NewTask:
    piece = NewPiece(items=1, cost=10, payload=b'["a"]')
    return new_task(task_id=new_task_id(), queue=MODEL, owner="somebody", pieces=[piece] * pieces)


def claimed(token: str) -> ClaimRequest:
    return ClaimRequest(stream="w/0", token=token, budget=1, max_pieces=1, lease_ms=15_000, linger_ms=2000)


def test_open_tasks_leases_and_lingering_streams_are_no_leaks(redis_client: "redis.Redis") -> None:
    ledger = Ledger(redis_client)
    ledger.run(submit(a_task(pieces=5)))
    for number in range(7):  # five leases; the sixth claim finds nothing and registers as lingering
        ledger.run(claim(MODEL, claimed(f"w/0/{number}")))
    assert redis_client.zcard(f"eq:q:{MODEL}:leases") == 5
    assert redis_client.zcard(f"eq:q:{MODEL}:lingering") == 1

    assert leaked_keys(redis_client) == []


@pytest.mark.parametrize("key", ["eq:result:task_1", "eq:q:m:claim:t", "eq:q:m:worker:w", "celery", "eq:schema:old"])
def test_a_key_that_never_expires_is_a_leak(redis_client: "redis.Redis", key: str) -> None:
    redis_client.set(key, b"1")

    assert leaked_keys(redis_client) == [key]

    redis_client.expire(key, 60)
    assert leaked_keys(redis_client) == []

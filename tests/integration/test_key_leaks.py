"""The key-leak check itself: it lets through what is allowed, and nothing else."""

import redis

from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.client import Ledger
from tasks.ledger.submit import submit
from tasks.ledger.task import NewPiece
from tests.key_leaks import leaked_keys
from tests.ledger_builders import new_task

PIECE = NewPiece(items=1, cost=10, payload=b'["a"]')
LEAKS = ("eq:result:task_1", "eq:q:m:claim:t", "eq:q:m:worker:w", "celery", "eq:schema:old")


def test_a_key_that_never_expires_is_a_leak(redis_client: "redis.Redis") -> None:
    ledger, model = Ledger(redis_client), "org/model:v1"
    ledger.run(submit(new_task(task_id="task_1", queue=model, pieces=[PIECE] * 5)))
    for number in range(7):  # five leases; the sixth claim finds nothing and registers as lingering
        asked = ClaimRequest("w/0", f"w/0/{number}", budget=1, max_pieces=1, lease_ms=15_000, linger_ms=2000)
        ledger.run(claim(model, asked))
    assert redis_client.zcard(f"eq:q:{model}:leases") == 5
    assert redis_client.zcard(f"eq:q:{model}:lingering") == 1
    assert leaked_keys(redis_client) == []
    for key in LEAKS:
        redis_client.set(key, b"1")
        assert leaked_keys(redis_client) == [key]
        redis_client.expire(key, 60)
        assert leaked_keys(redis_client) == []

"""How replies are read, and which errors they become."""

from typing import Any

import msgpack
import numpy as np
import pytest

from tasks.errors import BacklogFull, SchemaMismatch
from tasks.item import Options, TextError
from tasks.ledger.overview import TOOK_BOUNDS_S, find_queue, overview, took_counts
from tasks.ledger.packed import record_of
from tasks.ledger.read import check_schema, read_result
from tasks.ledger.redis_keys import SCHEMA_VERSION
from tasks.ledger.submit import submit
from tasks.ledger.task import Lane, Outcome, Piece, Result
from tests.ledger_builders import new_task
from tests.raises_code import raises_code


def read_submit(*reply: Any) -> object:
    return submit(new_task()).read([list(reply)])


def test_a_refusal_says_when_to_come_again_and_not_the_same_to_all() -> None:
    for seconds, earliest, latest in (
        *((b"0.001", 1, 1), (b"-5", 1, 1), (b"1.2", 2, 2)),
        *((b"40", 40, 50), (b"119.5", 96, 120), (b"1e9", 96, 120)),
    ):
        with pytest.raises(BacklogFull, match=r"31 s.*Nothing was stored") as refused:
            read_submit(b"full", seconds, b"31.4")
        assert earliest <= (refused.value.retry_after_s or 0) <= latest
    told = set()
    for _ in range(100):
        with raises_code("storage_full") as full:
            read_submit(b"memory", b"40")
        told.add(full.value.retry_after_s)
    assert len(told) > 1
    for code, reply in (
        ("storage_full", (b"share", b"5")),
        ("idempotency_key_reused", (b"conflict",)),
        ("invalid_api_key", (b"revoked",)),
        ("rate_limited", (b"key", b"tokens_per_minute", 100, 40, b"7.5")),
        ("key_limit", (b"key", b"queued_tokens", 100, 400, b"-1")),
    ):
        with raises_code(code) as refusal:
            read_submit(*reply)
        assert (code == "rate_limited") == (8 <= (refusal.value.retry_after_s or 0) <= 10)


def queue_row(counts: list[bytes]) -> list[Any]:
    return [b"m", b"", b"", counts, 0, [-1, -1], [], [], 0]


def test_a_task_is_counted_by_the_time_from_its_acceptance_to_its_end() -> None:
    for ms, bound_s in ((0, 0.004), (4, 0.004), (5, 0.008), (1024, 1.024), (1025, 2.048), (2**29, None)):
        told = took_counts([(Lane.BULK, ms), (Lane.BULK, ms)])
        counts = [text for name, n in told.items() for text in (name.encode(), b"%d" % n)]
        found, sum_s = overview("m").read([[0] * 4, queue_row(counts)])["m"].took(Lane.BULK)
        counted = dict(zip((*TOOK_BOUNDS_S, None), found, strict=True))
        assert {bound: count for bound, count in counted.items() if count} == {bound_s: 2}
        assert sum_s == 2 * ms / 1000

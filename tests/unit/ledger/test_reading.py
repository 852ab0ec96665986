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

NOW_MS = 1_900_000_000_000
BOOM = TextError("boom", "it did not work")


def record(**changed: Any) -> bytes:
    """A task of four texts as scripts pack it; what is not said is 0 or empty."""
    names = list(record_of(msgpack.packb(list(range(99)))))
    texts = {"in_queue": "m", "lane": "bulk", "owner": "someone", "state": "in_progress"}
    texts |= dict.fromkeys(("options", "trace", "back", "alias", "answer", "made_by"), "")
    values = {"total": 4, "created": NOW_MS - 500, "ttl": 1500, **texts, **changed}
    return bytes(msgpack.packb([values.get(name, 0) for name in names]))


def stored(fields: dict[str, bytes] | None = None, **changed: Any) -> Result:
    """The result of a task whose hash has these fields."""
    reply = {b"s": record(**changed), **{name.encode(): value for name, value in (fields or {}).items()}}
    result = read_result("t").read([reply])
    assert result is not None
    return result


def rows(*values: float) -> bytes:
    return np.array([[v, v] for v in values], dtype="<f4").tobytes()


def extra(errors: dict[int, TextError], truncated: list[int]) -> bytes:
    piece = Piece("t", "0", 0, 1, 1, 0, 0, Options(), b"[]")
    return Outcome(piece, b"", errors=errors, truncated=truncated).extra()


def test_pieces_are_put_in_input_order_and_a_failed_text_has_its_own_error_and_a_row_of_nan() -> None:
    result = stored({"v3+1": rows(3), "v0+1": rows(0), "v1+2": rows(1, 2)}, state="completed")
    assert result.vectors.dtype == np.float32
    assert (result.vectors.tolist(), result.errors) == ([[0, 0], [1, 1], [2, 2], [3, 3]], {})
    result = stored({"v0+4": rows(0, float("nan"), 2, 3), "x0": extra({1: BOOM}, [2, 3])}, state="cancelled")
    assert (dict(result.errors), set(result.truncated)) == ({1: BOOM}, {2, 3})
    assert np.isnan(result.vectors).all(axis=1).tolist() == [False, True, False, False]


@pytest.mark.parametrize(
    ("state", "cost", "code"),
    [
        ("in_progress", 5, ""),
        ("cancelled", 5, "cancelled"),
        ("expired", 5, "expired"),
        ("completed", 5, "model_changed"),
        ("failed", 5, "model_changed"),
        ("completed", 0, "internal_error"),
    ],
)
def test_what_is_missing_is_nan_and_of_an_ended_task_has_the_error_of_its_end(state: str, cost: int, code: str) -> None:
    result = stored({"v1+2": rows(1, 2), "u0": b"0 1 5 0 0 9 -", "d0": b"[]"}, state=state, cost=cost)
    assert {index: error.code for index, error in result.errors.items()} == ({0: code, 3: code} if code else {})
    assert result.stored_errors == {}
    assert np.isnan(result.vectors).all(axis=1).tolist() == [True, False, False, True]


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


def test_a_model_is_found_by_its_names_and_others_are_named() -> None:
    seen = overview("m").read([[0] * 4, queue_row([])])
    assert find_queue("m", ["own"], seen).name == "m"
    assert find_queue("other", ["own", "other"], seen).name == "own"
    assert find_queue("own", ["own"], seen).max_tokens == 512
    with raises_code("model_not_found", match="serves own, m"):
        find_queue("none", ["own"], seen)


def test_another_schema_is_refused() -> None:
    assert [check_schema().read([claimed, b"%d" % SCHEMA_VERSION]) for claimed in (1, 0)] == [True, False]
    with pytest.raises(SchemaMismatch, match=r"schema 1;.*empty Redis"):
        check_schema().read([0, b"1"])

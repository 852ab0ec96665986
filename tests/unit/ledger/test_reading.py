"""How replies are read, and which errors they become."""

from typing import Any

import msgpack
import numpy as np
import pytest

from tasks.errors import BacklogFull, ModelChanged, SchemaMismatch, StorageFull
from tasks.item import Options, TextError
from tasks.ledger.cancel import cancel, forget
from tasks.ledger.claim import ClaimRequest, claim
from tasks.ledger.commit import CommitCode, commit
from tasks.ledger.heartbeat import Pulse, beat, watch
from tasks.ledger.overview import TOOK_BOUNDS_S, find_queue, overview, took_counts
from tasks.ledger.packed import record_of
from tasks.ledger.read import check_schema, read_result, read_task, read_tasks, results_in
from tasks.ledger.redis_keys import SCHEMA_VERSION
from tasks.ledger.submit import submit
from tasks.ledger.task import Lane, NewPiece, Outcome, Piece, Result, State, Task
from tests.ledger_builders import a_model, a_worker, new_task
from tests.raises_code import raises_code

NOW_MS = 1_900_000_000_000
REQUEST = ClaimRequest(stream="w/0", token="w/0/1", budget=10, max_pieces=5, lease_ms=1000)
BOOM = TextError("boom", "it did not work")

# ---- tasks and results


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


def task(**changed: Any) -> Task:
    found = read_task("t").read([[record(**changed), None]])
    assert found is not None
    return found


def rows(*values: float) -> bytes:
    return np.array([[v, v] for v in values], dtype="<f4").tobytes()


def extra(errors: dict[int, TextError], truncated: list[int]) -> bytes:
    piece = Piece("t", "0", 0, 1, 1, 0, 0, Options(), b"[]")
    return Outcome(piece, b"", errors=errors, truncated=truncated).extra()


def test_an_unknown_task_is_none() -> None:
    assert read_task("t").read([[None, None]]) is None
    assert read_result("t").read([{}]) is None


def test_reading_tasks_keeps_the_order_asked_for() -> None:
    unknown, known = read_tasks(["a", "b"]).read([None, record()])
    assert unknown is None
    assert known is not None
    assert known.id == "b"


def test_a_young_task_has_what_it_needs_and_none_for_the_rest() -> None:
    young = task(state="queued")
    assert (young.id, young.queue, young.lane, young.owner) == ("t", "m", Lane.BULK, "someone")
    assert (young.started_ms, young.finished_ms, young.deadline_ms, young.expires_ms) == (None, None, None, None)
    assert (young.prompt_tokens, young.options, young.metadata, young.died_ms) == (0, Options(), None, None)


def test_an_ended_task_says_when_it_will_be_forgotten() -> None:
    ended = task(state="completed", started=7, finished=8, deadline=9, tokens=11, deaths=2, died=5)
    assert (ended.started_ms, ended.finished_ms, ended.deadline_ms, ended.prompt_tokens) == (7, 8, 9, 11)
    assert (ended.expires_ms, ended.deaths, ended.died_ms) == (8 + 1500, 2, 5)


def test_a_record_of_an_older_version_is_read() -> None:
    older = bytes(msgpack.packb(msgpack.unpackb(record())[:29]))
    found = read_task("t").read([[older, None]])
    assert found is not None
    assert (found.state, found.deaths) == (State.IN_PROGRESS, 0)


def test_options_and_metadata_are_read_back() -> None:
    options = Options(dimensions=64, normalize=False)
    found = read_task("t").read([[record(options=options.to_text()), b'{"k":"v"}']])
    assert found is not None
    assert (found.options, found.metadata) == (options, {"k": "v"})


def test_pieces_are_put_in_input_order_whatever_order_they_come_in() -> None:
    result = stored({"v3+1": rows(3), "v0+1": rows(0), "v1+2": rows(1, 2)}, state="completed")
    assert result.vectors.dtype == np.float32
    assert result.vectors.tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert not result.errors


def test_what_is_missing_of_an_open_task_is_nan_and_no_error() -> None:
    result = stored({"v1+2": rows(1, 2), "u0": b"0 1 5 0 0 9 -", "d0": b"[]"})
    assert np.isnan(result.vectors).all(axis=1).tolist() == [True, False, False, True]
    assert result.errors == {}


@pytest.mark.parametrize(
    ("state", "cost", "code"),
    [
        ("cancelled", 5, "cancelled"),
        ("expired", 5, "expired"),
        ("completed", 5, "model_changed"),
        ("failed", 5, "model_changed"),
        ("completed", 0, "internal_error"),
    ],
)
def test_what_is_missing_of_an_ended_task_has_the_error_of_its_end(state: str, cost: int, code: str) -> None:
    result = stored({"v1+2": rows(1, 2)}, state=state, cost=cost)
    assert {index: error.code for index, error in result.errors.items()} == {0: code, 3: code}
    assert result.stored_errors == {}
    assert np.isnan(result.vectors[[0, 3]]).all()


def test_a_failed_text_keeps_its_own_error_and_a_row_of_nan() -> None:
    result = stored({"v0+4": rows(0, float("nan"), 2, 3), "x0": extra({1: BOOM}, [2, 3])}, state="cancelled")
    assert result.errors == {1: BOOM}
    assert result.truncated == {2, 3}
    assert np.isnan(result.vectors).all(axis=1).tolist() == [False, True, False, False]


def test_a_task_without_a_single_vector_has_dimension_0() -> None:
    result = stored({"x0": extra(dict.fromkeys(range(4), BOOM), [])}, state="failed")
    assert result.vectors.shape == (4, 0)
    assert set(result.errors) == {0, 1, 2, 3}


def test_vectors_are_not_tied_to_the_reply() -> None:
    result = stored({"v0+4": rows(0, 1, 2, 3)})
    result.vectors[0] = 5
    assert result.vectors[0].tolist() == [5, 5]


def test_a_job_returns_what_it_committed() -> None:
    assert stored({"v0+1": b'{"lines":3}'}, total=1, state="completed").returned() == {"lines": 3}
    assert stored({"x0": extra({0: BOOM}, [])}, total=1, state="failed").returned() is None


# ---- submitting


def read_submit(*reply: Any) -> object:
    return submit(new_task()).read([list(reply)])


def test_a_stored_task_is_told_from_a_joined_one() -> None:
    new = submit(new_task()).read([[b"ok", b"t"], b"m"])
    joined = submit(new_task()).read([[b"joined", b"other"]])
    assert (new.task_id, new.joined, new.bells_due, new.room) == ("t", False, ("m",), None)
    assert (joined.task_id, joined.joined, joined.bells_due) == ("other", True, ())


@pytest.mark.parametrize(
    ("seconds", "earliest", "latest"),
    [("0.001", 1, 1), ("-5", 1, 1), ("1.2", 2, 2), ("40", 40, 50), ("119.5", 96, 120), ("1e9", 96, 120)],
)
def test_a_full_backlog_says_when_to_come_again(seconds: str, earliest: int, latest: int) -> None:
    with pytest.raises(BacklogFull, match="Nothing was stored") as refused:
        read_submit(b"full", seconds.encode(), b"31.4")
    assert earliest <= (refused.value.retry_after_s or 0) <= latest
    assert "31 s" in refused.value.detail


def test_those_who_are_refused_together_do_not_come_back_together() -> None:
    told = set()
    for _ in range(100):
        with pytest.raises(StorageFull) as refused:
            read_submit(b"memory", b"40")
        told.add(refused.value.retry_after_s)
    assert len(told) > 1


def test_other_refusals() -> None:
    with pytest.raises(StorageFull):
        read_submit(b"share", b"5")
    with raises_code("idempotency_key_reused"):
        read_submit(b"conflict")
    with raises_code("invalid_api_key"):
        read_submit(b"revoked")
    with raises_code("rate_limited") as limited:
        read_submit(b"key", b"tokens_per_minute", 100, 40, b"7.5")
    assert 8 <= (limited.value.retry_after_s or 0) <= 10
    with raises_code("key_limit") as never:
        read_submit(b"key", b"queued_tokens", 100, 400, b"-1")
    assert not never.value.should_retry


def test_a_task_without_pieces_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no pieces"):
        submit(new_task(pieces=()))


def test_pieces_follow_the_other_arguments_of_a_task() -> None:
    count, *own = submit(new_task(pieces=(NewPiece(2, 20, b"x"), NewPiece(1, 5, b"y")))).gathers
    assert (count, own[0], own[-6:]) == (len(own), "t", [2, 20, b"x", 1, 5, b"y"])


# ---- workers


def test_an_empty_claim() -> None:
    empty = claim("m", REQUEST).read([1, 750, 0, b""])
    assert (empty.pieces, empty.lane, empty.more, empty.wait_ms, empty.bell_due) == ((), None, False, 750, True)


def test_a_claim_with_pieces() -> None:
    raw = [b"t", b"3a", 3, 1, 7, 2, 3, b'{"normalize":false}', b"[]", b"00-1-2-01", b"ann"]
    held = claim("m", REQUEST).read([0, 0, 1, b"bulk", raw])
    assert (held.token, held.lane, held.more, held.bell_due) == ("w/0/1", Lane.BULK, True, False)
    assert held.pieces == (Piece("t", "3a", 3, 1, 7, 2, 3, Options(normalize=False), b"[]", "00-1-2-01", "ann"),)


def test_a_claim_of_another_model_is_refused() -> None:
    with pytest.raises(ModelChanged):
        claim("m", REQUEST).read([b"changed"])


def test_a_commit_says_what_became_of_each_piece() -> None:
    reply = commit("m", "w/0/1", []).read([250, [0, 1, 2], [b"online", 7, b"bulk", 90]])
    assert reply.codes == [CommitCode.STALE, CommitCode.COMMITTED, CommitCode.REPEATED]
    assert (reply.wait_ms, reply.completed) == (250, [(Lane.ONLINE, 7), (Lane.BULK, 90)])


def test_what_a_heartbeat_found() -> None:
    told = beat("m", a_worker(), a_model(), 5000, tokens=["w/0/1"]).read([1, 0, 3, 2, 1, 0])
    assert told == Pulse(True, False, ready=3, leases=2, more=False)
    assert watch("m").read([0, 1, 0, 0, 0, 1]).more


@pytest.mark.parametrize(("state", "before"), [(b"queued", State.QUEUED), (b"cancelled", State.CANCELLED), (b"", None)])
def test_a_cancel_tells_the_state_before(state: bytes, before: State | None) -> None:
    assert cancel("m", "t").read([state]) is before
    assert forget("m", "t", "u").read([state, b"failed"]) == (2 if state else 1)


# ---- news


def test_answers_are_read_one_by_one() -> None:
    pieces = [b"t", b"2", record(total=1, state="completed"), b"v0+1", rows(7), b"u", b"0", record(state="expired")]
    message = b" ".join(b"%d" % len(piece) for piece in pieces) + b"\n" + b"".join(pieces)
    first, second = results_in(message)
    assert (first.task.id, first.vectors.tolist()) == ("t", [[7, 7]])
    assert (second.task.id, second.task.state) == ("u", State.EXPIRED)


# ---- figures


def queue_row(state: dict[str, Any] | None = None, counts: list[bytes] | None = None, **changed: Any) -> list[Any]:
    values: dict[str, Any] = {"leases": 0, "oldest": [-1, -1], "workers": [], "loading": [], "absent": 0} | changed
    packed = msgpack.packb(state) if state else b""
    return [b"m", b"", packed, counts or [], *values.values()]


def test_an_overview_of_a_queue_that_nobody_has_used() -> None:
    seen = overview("m").read([[420, 1000, 2, 1], queue_row(oldest=[-1, 1500])])["m"]
    assert (seen.name, seen.model, seen.rate, seen.workers, seen.absent_ms) == ("m", None, None, (), None)
    assert seen.backlog_cost == seen.backlog_tasks == {Lane.ONLINE: 0, Lane.BULK: 0}
    assert (seen.counters, sum(seen.took(Lane.BULK)[0])) == ({}, 0)
    assert seen.oldest_waiting_s == {Lane.BULK: 1.5}
    assert (seen.redis.memory_percent, seen.redis.open_batches, seen.redis.open_ingestions) == (42, 2, 1)


def test_an_overview_of_a_queue_at_work() -> None:
    state = {"cost_bulk": 7, "open_bulk": 2, "owners_bulk": 1, "rate": 150, "bytes": 4, "reserved": 9}
    counts = [b"lost_leases", b"3", b"items_bulk_completed", b"9", b"took_bulk_7", b"2"]
    seen = overview("m").read([[0] * 4, queue_row(state, counts, leases=5)])["m"]
    assert (seen.backlog_cost[Lane.BULK], seen.backlog_tasks[Lane.BULK], seen.backlog_bytes) == (7, 2, 4)
    assert (seen.owners[Lane.BULK], seen.redis.reserved_bytes) == (1, 9)
    assert (seen.rate, seen.leases) == (150.0, 5)
    assert seen.counters == {"lost_leases": 3, "items_bulk_completed": 9, "took_bulk_7": 2, "committed_items": 9}


@pytest.mark.parametrize(
    ("ms", "bound_s"),
    [(0, 0.004), (4, 0.004), (5, 0.008), (1024, 1.024), (1025, 2.048), (2**27, 134217.728), (2**29, None)],
)
def test_a_task_is_counted_by_the_time_from_its_acceptance_to_its_end(ms: int, bound_s: float | None) -> None:
    told = took_counts([(Lane.BULK, ms), (Lane.BULK, ms)])
    counts = [text for name, n in told.items() for text in (name.encode(), b"%d" % n)]
    found, sum_s = overview("m").read([[0] * 4, queue_row(counts=counts)])["m"].took(Lane.BULK)
    counted = dict(zip((*TOOK_BOUNDS_S, None), found, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {bound_s: 2}
    assert sum_s == 2 * ms / 1000


def test_a_model_is_found_by_its_names_and_others_are_named() -> None:
    seen = overview("m").read([[0] * 4, queue_row()])
    assert find_queue("m", ["own"], seen).name == "m"
    assert find_queue("other", ["own", "other"], seen).name == "own"
    assert find_queue("own", ["own"], seen).max_tokens == 512
    with raises_code("model_not_found", match="serves own, m"):
        find_queue("none", ["own"], seen)


def test_another_schema_is_refused() -> None:
    assert [check_schema().read([claimed, b"%d" % SCHEMA_VERSION]) for claimed in (1, 0)] == [True, False]
    with pytest.raises(SchemaMismatch, match=r"schema 1;.*empty Redis"):
        check_schema().read([0, b"1"])

"""How replies of scripts are read, and which errors they become."""

from typing import Any

import pytest

from tasks.errors import BacklogFull, SchemaMismatch, StorageFull
from tasks.item import Options
from tasks.ledger import SCHEMA_VERSION, Lane, NewUnit, operations
from tasks.ledger.operations import ClaimRequest
from tasks.ledger.overview import TOOK_BOUNDS_S
from tests.ledger_builders import submission
from tests.raises_code import raises_code

REQUEST = ClaimRequest(worker="w", token="w/1", budget=10, max_units=5, lease_ms=1000)


def read_submit(reply: list[Any]) -> object:
    return operations.submit(submission()).read(reply)


def test_a_stored_task_is_told_from_a_joined_one() -> None:
    stored = operations.submit(submission()).read([b"ok", b"t", 1])
    joined = operations.submit(submission()).read([b"joined", b"other", 0])
    assert (stored.task_id, stored.joined, stored.bell_due) == ("t", False, True)
    assert (joined.task_id, joined.joined, joined.bell_due) == ("other", True, False)


@pytest.mark.parametrize(
    ("seconds", "earliest", "latest"),
    [("0.001", 1, 1), ("-5", 1, 1), ("1.2", 2, 2), ("40", 40, 50), ("119.5", 96, 120), ("1e9", 96, 120)],
)
def test_a_full_backlog_says_when_to_come_again(seconds: str, earliest: int, latest: int) -> None:
    with pytest.raises(BacklogFull, match="Nothing was stored") as refused:
        read_submit([b"full", seconds.encode(), b"31.4"])
    assert earliest <= (refused.value.retry_after_s or 0) <= latest
    assert "31 s" in refused.value.detail


def test_those_who_are_refused_together_do_not_come_back_together() -> None:
    told = set()
    for _ in range(100):
        with pytest.raises(StorageFull) as refused:
            read_submit([b"memory", b"40"])
        told.add(refused.value.retry_after_s)
    assert len(told) > 1


def test_other_refusals() -> None:
    with pytest.raises(StorageFull):
        read_submit([b"memory", b"5"])
    with raises_code("idempotency_key_reused"):
        read_submit([b"conflict"])


def test_a_task_without_units_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no units"):
        operations.submit(submission(units=()))


def test_units_follow_the_other_arguments_of_a_submit() -> None:
    units = (NewUnit(2, 20, b"x"), NewUnit(1, 5, b"y"))
    assert operations.submit(submission(units=units)).arguments[-6:] == (2, 20, b"x", 1, 5, b"y")


def test_an_empty_claim() -> None:
    claim = operations.claim("m", REQUEST).read([1, 750, 0, b"", 0])
    assert (claim.units, claim.lane, claim.more, claim.wait_ms, claim.bell_due) == ((), None, False, 750, True)


def test_a_claim_with_units() -> None:
    raw = [b"t", b"s3", 3, 1, 7, 2, 3, b'{"normalize":false}', b"[]", b"00-1-2-01", b"ann"]
    claim = operations.claim("m", REQUEST).read([0, 0, 1, b"bulk", 0, raw])
    assert (claim.token, claim.lane, claim.more, claim.bell_due) == ("w/1", Lane.BULK, True, False)
    (unit,) = claim.units
    assert (unit.task_id, unit.unit_id, unit.first, unit.items, unit.cost) == ("t", "s3", 3, 1, 7)
    assert (unit.attempts, unit.offset, unit.options, unit.trace) == (2, 3, Options(normalize=False), "00-1-2-01")
    assert unit.owner == "ann"


def test_reading_tasks_keeps_the_order_asked_for() -> None:
    unknown = [[], -2, b"", 0, []]
    assert operations.read_tasks(["a", "b"]).read([unknown, unknown]) == [None, None]
    with pytest.raises(ValueError, match="zip"):
        operations.read_tasks(["a", "b"]).read([unknown])


def test_another_schema_is_refused() -> None:
    operations.check_schema().read(b"%d" % SCHEMA_VERSION)
    with pytest.raises(SchemaMismatch, match=r"schema 1;.*empty Redis"):
        operations.check_schema().read(b"1")


def test_an_overview_of_a_queue_that_nobody_has_used() -> None:
    seen = operations.overview("m").read([[420, 1000, 7, 2, 1], [b"m", b"", [], 0, [-1, 1500]]])["m"]
    assert (seen.queue, seen.entry, seen.rate, seen.workers, seen.memory_percent) == ("m", None, None, (), 42)
    assert seen.backlog_cost == seen.backlog_tasks == {Lane.ONLINE: 0, Lane.BULK: 0}
    assert (seen.counters, seen.took, seen.ended) == ({}, {}, {})
    assert seen.oldest_waiting_s == {Lane.BULK: 1.5}
    assert (seen.redis.reserved_bytes, seen.redis.open_batches, seen.redis.open_ingestions) == (7, 2, 1)


def test_an_overview_tells_counters_from_the_rest_of_the_state() -> None:
    state = [b"cost_bulk", b"7", b"tasks_bulk", b"2", b"n_rings", b"3", b"rate", b"150", b"bell", b"9", b"bytes", b"4"]
    state += [b"items_bulk_completed", b"9"]
    seen = operations.overview("m").read([[0] * 5, [b"m", b"", state, 5, [-1, -1]]])["m"]
    assert (seen.backlog_cost[Lane.BULK], seen.backlog_tasks[Lane.BULK], seen.backlog_bytes) == (7, 2, 4)
    assert (seen.rate, seen.leases, seen.counters) == (150.0, 5, {"rings": 3})
    assert seen.oldest_waiting_s == {}
    assert seen.ended == {"items_bulk_completed": 9}


def test_an_overview_tells_how_long_tasks_took() -> None:
    state = [b"took_bulk_7", b"2", b"took_bulk_28", b"1", b"took_bulk_ms", b"1500"]
    seen = operations.overview("m").read([[0] * 5, [b"m", b"", state, 0, [-1, -1]]])["m"]
    took = seen.took[Lane.BULK]
    counted = dict(zip((*TOOK_BOUNDS_S, None), took.counts, strict=True))
    assert {bound: count for bound, count in counted.items() if count} == {0.128: 2, None: 1}
    assert (len(seen.took), took.sum_s) == (1, 1.5)

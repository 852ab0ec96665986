"""Units: in one place at a time, leased under a token, committed once."""

from typing import Any

import numpy as np
import orjson
import pytest

from tasks.item import Options, TextError
from tasks.ledger import CommitOutcome, Finished, Lane, NewUnit, OutcomeKind, State, operations
from tests.integration.ledger.driver import LEASE_MS, TTL_MS, Driver, failed, finished, rows, unchanging
from tests.ledger_builders import worker_entry

STILL_MS = 5000
"""Of what passes between two looks at the clock this much counts at most."""


def test_a_claim_hands_out_what_was_submitted(driver: Driver) -> None:
    options = Options(prompt_name="query", dimensions=128, normalize=False, truncate=False)
    task_id = driver.submit((2, 20), (1, 7), options=options).task_id
    claim = driver.claim()
    assert [(u.task_id, u.first, u.items, u.cost, u.attempts, u.offset) for u in claim.units] == [
        (task_id, 0, 2, 20, 1, 0),
        (task_id, 2, 1, 7, 1, 0),
    ]
    assert [u.texts() for u in claim.units] == [["t0", "t1"], ["t2"]]
    assert {u.options for u in claim.units} == {options}
    assert (claim.lane, claim.more) == (Lane.ONLINE, False)


def test_a_claim_hands_out_the_owner_and_the_trace_of_each_task(driver: Driver) -> None:
    traced, untraced = driver.submit(trace="00-1-2-01").task_id, driver.submit().task_id
    claim = driver.claim(token="w/claim")
    assert {unit.owner for unit in claim.units} == {driver.task(traced).owner} != {""}
    assert {unit.task_id: unit.trace for unit in claim.units} == {traced: "00-1-2-01", untraced: ""}
    again = driver.claim(token="w/claim")  # its reply was lost
    assert {unit.owner for unit in again.units} == {driver.task(traced).owner}
    assert {unit.task_id: unit.trace for unit in again.units} == {traced: "00-1-2-01", untraced: ""}
    assert (driver.task(traced).trace, driver.task(untraced).trace) == ("00-1-2-01", "")
    assert not driver.client.hexists(f"eq:task:{untraced}", "trace")


def test_a_claim_ends_with_16_mib_of_texts_however_little_they_cost(driver: Driver) -> None:
    for _ in range(3):
        driver.submit(units=[NewUnit(items=1, cost=10, payload=orjson.dumps(["x" * 9 * 2**20]))])
    assert [len(driver.claim(budget=1000).units) for _ in range(2)] == [2, 1]


def test_a_task_goes_from_queued_through_in_progress_to_completed(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (1, 7)).task_id
    queued = driver.task(task_id)
    assert (queued.state, queued.total, queued.created_ms) == (State.QUEUED, 3, driver.now_ms)
    assert (queued.started_ms, queued.finished_ms, queued.expires_ms) == (None, None, None)

    driver.advance(100)
    claim = driver.claim()
    started = driver.task(task_id)
    assert (started.state, started.started_ms) == (State.IN_PROGRESS, driver.now_ms)

    driver.advance(100)
    driver.commit(claim)
    ended = driver.task(task_id)
    assert (ended.state, ended.completed, ended.failed) == (State.COMPLETED, 3, 0)
    assert (ended.finished_ms, ended.prompt_tokens) == (driver.now_ms, 30)
    assert ended.expires_ms is not None
    assert driver.now_ms < ended.expires_ms <= driver.now_ms + TTL_MS


def test_committed_vectors_are_readable_before_the_end(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (2, 20)).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[1], mark=5)])
    result = driver.result(task_id)
    assert result.task.state is State.IN_PROGRESS
    assert result.vectors[2:].tolist() == [[2, 5], [3, 5]]
    assert np.isnan(result.vectors[:2]).all()
    assert not result.errors


def test_the_same_commit_again_changes_nothing_and_says_so(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (1, 5)).task_id
    claim = driver.claim()
    assert driver.commit(claim) == [CommitOutcome.COMMITTED] * 2
    before = unchanging(driver.task(task_id))
    assert driver.commit(claim) == [CommitOutcome.REPEATED] * 2
    assert unchanging(driver.task(task_id)) == before


def test_a_unit_that_is_named_twice_in_a_commit_counts_once(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (1, 5)).task_id
    claim = driver.claim()
    first, other = finished(claim.units[0]), finished(claim.units[0], mark=1)
    outcomes = driver.commit(claim, [first, first, other])
    assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.REPEATED, CommitOutcome.STALE]
    task = driver.task(task_id)
    assert (task.state, task.completed) == (State.IN_PROGRESS, 2)


def test_the_same_commit_of_errors_again_changes_nothing_and_says_so(driver: Driver) -> None:
    task_id = driver.submit((2, 20)).task_id
    claim = driver.claim()
    outcome = [failed(claim.units[0])]
    assert driver.commit(claim, outcome) == [CommitOutcome.COMMITTED]
    before = unchanging(driver.task(task_id))
    assert before.state is State.FAILED
    assert driver.commit(claim, outcome) == [CommitOutcome.REPEATED]
    assert unchanging(driver.task(task_id)) == before


def test_a_repeated_commit_is_not_counted_again(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim()
    call = operations.commit("m", claim.token, [finished(claim.units[0])], forward_passes=1, padded_tokens=16)
    driver.run(call)
    before = driver.run(operations.overview("m"))["m"].counters
    driver.run(call)
    assert driver.run(operations.overview("m"))["m"].counters == before


def test_a_worker_whose_lease_was_taken_over_cannot_commit(driver: Driver) -> None:
    task_id = driver.submit().task_id
    lost = driver.claim("slow")
    driver.advance(LEASE_MS)
    taken_over = driver.claim_any("quick")
    assert [u.unit_id for u in taken_over.units] == [u.unit_id for u in lost.units]
    assert driver.commit(lost, mark=1) == [CommitOutcome.STALE]
    assert driver.task(task_id).completed == 0
    assert driver.commit(taken_over, mark=2) == [CommitOutcome.COMMITTED]
    assert driver.commit(lost, mark=1) == [CommitOutcome.STALE]
    assert driver.result(task_id).vectors.tolist() == [[0, 2]]


def test_an_expired_lease_that_nobody_took_still_commits(driver: Driver) -> None:
    task_id = driver.submit().task_id
    claim = driver.claim()
    driver.advance(LEASE_MS * 10)
    assert driver.commit(claim) == [CommitOutcome.COMMITTED]
    assert driver.task(task_id).state is State.COMPLETED
    assert driver.watch().leases == 0


def test_a_claim_asked_for_again_gives_the_same_units(driver: Driver) -> None:
    driver.submit((1, 10), (1, 10))
    driver.submit((1, 10))
    first = driver.claim("w", token="w/1", max_units=2)
    again = driver.claim("w", token="w/1", max_units=2)
    assert {(u.task_id, u.unit_id): u for u in again.units} == {(u.task_id, u.unit_id): u for u in first.units}
    assert again.lane is first.lane
    assert len(driver.claim("w", token="w/2").units) == 1


def test_partial_failure_completes_the_task_with_errors(driver: Driver) -> None:
    task_id = driver.submit((3, 30)).task_id
    claim = driver.claim()
    unit = claim.units[0]
    outcome = Finished(
        unit=unit,
        kind=OutcomeKind.VECTORS,
        outcome=rows(unit),
        tokens=30,
        errors={1: TextError("boom", "why")},
        truncated=[2],
    )
    assert driver.commit(claim, [outcome]) == [CommitOutcome.COMMITTED]
    result = driver.result(task_id)
    assert (result.task.state, result.task.completed, result.task.failed) == (State.COMPLETED, 2, 1)
    assert result.errors == {1: TextError("boom", "why")}
    assert result.truncated == {2}


def test_a_task_none_of_whose_items_succeeded_has_failed(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (1, 10)).task_id
    claim = driver.claim()
    driver.commit(claim, [failed(unit) for unit in claim.units])
    assert driver.task(task_id).state is State.FAILED
    assert set(driver.result(task_id).errors) == {0, 1, 2}


def test_a_claim_takes_at_least_one_unit_and_otherwise_keeps_to_its_budget(driver: Driver) -> None:
    driver.submit((1, 500), (1, 60), (1, 30), (1, 30))
    assert [u.cost for u in driver.claim(budget=100).units] == [500]
    assert [u.cost for u in driver.claim(budget=100).units] == [60, 30]
    assert [u.cost for u in driver.claim(budget=100).units] == [30]


def test_a_claim_keeps_to_its_number_of_units(driver: Driver) -> None:
    driver.submit(*[(1, 1)] * 5)
    claim = driver.claim(max_units=3)
    assert (len(claim.units), claim.more) == (3, True)
    assert len(driver.claim(max_units=3).units) == 2


def test_more_units_than_a_script_may_unpack_are_claimed_in_parts(driver: Driver) -> None:
    driver.submit(*[(1, 1)] * 1001)
    assert len(driver.claim(budget=10**6, max_units=10**6).units) == 1000
    assert len(driver.work_off()) == 1


def test_renewing_prolongs_a_lease_and_says_when_it_is_lost(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim("w")
    driver.advance(LEASE_MS - 1)
    assert driver.run(operations.renew("m", claim.token, LEASE_MS))
    driver.advance(LEASE_MS - 1)
    assert driver.claim("other").units == ()
    driver.advance(1)
    assert len(driver.claim_any("other").units) == 1
    assert not driver.run(operations.renew("m", claim.token, LEASE_MS))


def test_a_lease_set_by_a_clock_that_jumped_ends_soon(driver: Driver) -> None:
    driver.submit()
    driver.claim("w")
    driver.advance(-3_600_000)
    driver.watch()
    driver.advance(30_000)
    assert len(driver.claim_any("other").units) == 1


def held(driver: Driver) -> bool:
    return driver.watch().leases == 1


def test_a_standstill_right_after_the_first_claim_counts_no_more(driver: Driver) -> None:
    driver.submit()
    driver.commit(driver.claim())
    driver.submit()
    driver.stand_still(3_600_000)  # an idle service
    driver.claim("w")
    driver.stand_still(3_600_000)
    assert held(driver)
    driver.advance(LEASE_MS)
    assert not held(driver)


@pytest.mark.parametrize("look", [operations.watch("m"), operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000)])
def test_workers_and_watchdogs_look_at_the_clock(driver: Driver, look: operations.Operation[Any]) -> None:
    driver.submit()
    driver.claim("w")
    for _ in range(2):
        driver.stand_still(STILL_MS - 1)
        driver.run(look)
    driver.claim("other")
    driver.advance(LEASE_MS - 2 * (STILL_MS - 1))
    assert not held(driver)


def test_a_redis_that_stood_still_does_not_end_leases(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim("w")
    assert held(driver)
    driver.stand_still(20 * LEASE_MS)  # or its clock stepped forward
    assert driver.claim("other").units == ()
    assert held(driver)
    driver.advance(LEASE_MS - STILL_MS - 1)
    assert held(driver), "it got less than what it had, but for what may pass between two looks"
    assert driver.commit(claim) == [1]
    assert driver.task(claim.units[0].task_id).state is State.COMPLETED


def test_a_lease_renewed_after_a_standstill_is_as_long_as_others(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim("w")
    assert held(driver)
    driver.stand_still(20 * LEASE_MS)
    assert driver.run(operations.renew("m", claim.token, LEASE_MS))
    assert held(driver)
    driver.advance(LEASE_MS)
    assert not held(driver)


def test_where_nobody_looked_work_of_the_dead_comes_back_a_lease_late(driver: Driver) -> None:
    driver.submit()
    driver.claim("w")
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    driver.stand_still(3_600_000)  # a service that was stopped
    assert held(driver)
    driver.advance(LEASE_MS)
    assert not held(driver)


def test_leases_end_although_looks_are_rare(driver: Driver) -> None:
    driver.submit()
    driver.claim("w")
    seen = []
    for _ in range(LEASE_MS // STILL_MS + 1):
        seen.append(held(driver))
        driver.stand_still(2 * STILL_MS)
    assert seen == [True] * (LEASE_MS // STILL_MS) + [False]

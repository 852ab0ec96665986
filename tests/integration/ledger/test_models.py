"""One model under a served name: whoever has another one gets nothing, commits nothing, and spoils no result."""

import dataclasses

import pytest
import redis

from tasks.errors import ModelChanged
from tasks.ledger import CommitOutcome, Lane, ModelEntry, State, operations
from tests.integration.ledger.driver import Driver
from tests.ledger_builders import model_entry, worker_entry

ENTRY = model_entry()
OTHER = dataclasses.replace(ENTRY, revision="def")
TTL_MS = 9000


def register(driver: Driver, entry: ModelEntry, name: str) -> bool:
    return driver.run(operations.register("m", entry, worker=name, ttl_ms=TTL_MS))


def test_what_changes_no_vector_has_the_same_stamp() -> None:
    same = dataclasses.replace(
        ENTRY, device="cuda:0", precision="float16", compute="openvino", created_at=2, prompts=()
    )
    assert same.stamp == ENTRY.stamp
    others = [OTHER, dataclasses.replace(ENTRY, model="org/other"), dataclasses.replace(ENTRY, dimension=8)]
    assert len({other.stamp for other in others} - {ENTRY.stamp}) == len(others)


def test_of_two_that_start_together_with_different_models_one_is_refused(driver: Driver) -> None:
    assert register(driver, ENTRY, "a")
    assert not register(driver, OTHER, "b"), "the first has not said a beat yet"
    assert driver.run(operations.overview())["m"].entry == ENTRY
    assert register(driver, ENTRY, "c"), "the same model"
    driver.run(operations.retire("m", "c"))
    assert register(driver, OTHER, "a"), "its own earlier start"


def test_a_model_is_exchanged_when_nobody_serves_the_one_before(driver: Driver) -> None:
    register(driver, ENTRY, "a")
    driver.advance(TTL_MS)
    assert register(driver, OTHER, "b")
    driver.run(operations.beat("m", worker_entry("a", 10.0), TTL_MS, ENTRY))
    driver.run(operations.beat("m", worker_entry("b", 20.0), TTL_MS, OTHER))
    seen = driver.run(operations.overview())["m"]
    assert (seen.entry, [w.id for w in seen.workers], seen.rate) == (OTHER, ["b"], 20.0)
    driver.submit()
    with pytest.raises(ModelChanged):
        driver.claim("a", stamp=ENTRY.stamp)
    assert len(driver.claim("b", stamp=OTHER.stamp).units) == 1


def test_an_emptied_redis_serves_the_model_that_claims_first_however_full_it_is(
    driver: Driver, redis_client: redis.Redis
) -> None:
    driver.submit((1, 10), (1, 10))
    redis_client.config_set("maxmemory", 1)
    try:
        assert len(driver.claim("a", stamp=ENTRY.stamp, max_units=1).units) == 1
        with pytest.raises(ModelChanged):
            driver.claim("b", stamp=OTHER.stamp)
    finally:
        redis_client.config_set("maxmemory", 256 * 2**20)
    assert len(driver.claim("c", stamp=ENTRY.stamp).units) == 1


def test_whoever_worked_when_its_model_was_exchanged_commits_nothing(driver: Driver) -> None:
    register(driver, ENTRY, "a")
    task = driver.submit((2, 10)).task_id
    old = driver.claim("a", stamp=ENTRY.stamp)
    driver.advance(TTL_MS)
    register(driver, OTHER, "b")
    assert driver.commit(old, mark=1) == [CommitOutcome.STALE]
    new = driver.claim("b", stamp=OTHER.stamp)
    assert [(unit.items, unit.attempts) for unit in new.units] == [(2, 1)], "nobody's fault"
    driver.commit(new, mark=2)
    assert driver.result(task).vectors[:, 1].tolist() == [2, 2]


@pytest.mark.parametrize("lane", Lane)
def test_a_task_half_done_by_another_model_ends_when_its_turn_comes(driver: Driver, lane: Lane) -> None:
    register(driver, ENTRY, "a")
    half = driver.submit((1, 10), (3, 10), lane=lane).task_id
    driver.commit(driver.claim("a", max_units=1, stamp=ENTRY.stamp), mark=1)
    untouched = driver.submit((2, 10), lane=lane).task_id
    driver.run(operations.retire("m", "a"))
    register(driver, OTHER, "b")
    claim = driver.claim("b", stamp=OTHER.stamp)
    assert [unit.task_id for unit in claim.units] == [untouched]
    driver.commit(claim, mark=2)
    result = driver.result(half)
    assert (result.task.state, result.task.completed, result.task.failed) == (State.COMPLETED, 1, 3)
    assert result.task.model_changed
    assert result.vectors[0, 1] == 1
    assert {index: error.code for index, error in result.errors.items()} == dict.fromkeys((1, 2, 3), "model_changed")
    overview = driver.run(operations.overview())["m"]
    assert (overview.backlog_cost[lane], overview.backlog_tasks[lane], overview.counters["failed_items"]) == (0, 0, 3)
    done = driver.task(untouched)
    assert (done.state, done.model_changed) == (State.COMPLETED, False)


def test_the_same_model_goes_on_where_it_was(driver: Driver) -> None:
    register(driver, ENTRY, "a")
    task = driver.submit((1, 10), (3, 10)).task_id
    driver.commit(driver.claim("a", max_units=1, stamp=ENTRY.stamp))
    held = driver.claim("a", stamp=ENTRY.stamp)
    register(driver, ENTRY, "b")
    assert driver.commit(held) == [CommitOutcome.COMMITTED]
    assert driver.task(task).completed == 4


def test_a_redis_that_lost_its_data_learns_from_beats_what_is_served(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("a", 10.0), TTL_MS, ENTRY))
    with pytest.raises(ModelChanged):
        driver.claim("b", stamp=OTHER.stamp)
    assert not register(driver, OTHER, "b")

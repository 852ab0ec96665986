"""Units whose worker died: each item is tried alone, and only one that keeps killing fails."""

from collections.abc import Sequence

import pytest

from tasks.ledger import Claim, ClaimedUnit, Lane, State, operations
from tests.integration.ledger.driver import LEASE_MS, Driver, finished


def dies(driver: Driver, claim: Claim) -> None:
    """The worker that holds this claim dies; its lease runs out."""
    assert claim.units
    driver.advance(LEASE_MS)


def places(units: Sequence[ClaimedUnit]) -> list[tuple[str, int, int]]:
    return [(u.task_id, u.first, u.items) for u in units]


def test_a_lost_unit_comes_back_as_single_items_each_claimed_alone(driver: Driver) -> None:
    task_id = driver.submit((3, 30), (2, 20)).task_id
    dies(driver, driver.claim())
    seen = []
    for _ in range(5):
        claim = driver.claim()
        assert len(claim.units) == 1, "a suspect ran in company"
        unit = claim.units[0]
        assert (unit.items, unit.attempts) == (1, 2)
        assert unit.texts() == [f"t{unit.first}"]
        driver.commit(claim)
        seen.append(unit.first)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    result = driver.result(task_id)
    assert result.task.state is State.COMPLETED
    assert result.vectors[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_the_cost_of_a_unit_is_kept_when_it_is_split(driver: Driver) -> None:
    driver.submit((3, 32))
    dies(driver, driver.claim())
    assert sorted(u.cost for u in driver.work_off()) == [10, 10, 12]
    assert driver.run(operations.overview("m"))["m"].backlog_cost[Lane.ONLINE] == 0


def test_a_suspect_is_not_joined_by_others_nor_joins_them(driver: Driver) -> None:
    driver.submit((1, 10), owner="a")
    dies(driver, driver.claim())
    for owner in ("a", "b"):
        driver.submit((1, 10), (1, 10), owner=owner)
    sizes = []
    while (claim := driver.claim()).units:
        driver.commit(claim)
        suspects = [u for u in claim.units if u.attempts > 1]
        assert not suspects or len(claim.units) == 1
        sizes.append((len(claim.units), len(suspects)))
    assert sum(n for n, _ in sizes) == 5
    assert sum(s for _, s in sizes) == 1


def test_only_a_caller_that_is_alone_gets_a_suspect_and_others_are_told(driver: Driver) -> None:
    driver.submit((2, 20))
    dies(driver, driver.claim())
    told = driver.claim(alone=False, linger_ms=800)
    assert (told.units, told.suspects, told.more, told.wait_ms) == ((), True, True, 0)
    found = driver.claim("v", alone=True)
    assert ([u.attempts for u in found.units], found.suspects) == ([2], False)


def test_a_caller_that_is_not_alone_works_on_the_other_lane_beside_a_suspect(driver: Driver) -> None:
    driver.submit((1, 10), lane=Lane.BULK)
    dies(driver, driver.claim())
    fresh = driver.submit((1, 10), lane=Lane.ONLINE).task_id
    claim = driver.claim(alone=False)
    assert [u.task_id for u in claim.units] == [fresh]
    assert driver.claim(alone=False).suspects


def run_until_quiet(driver: Driver, poison: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Works everything off with workers that die of poisonous items; how often each item died alone."""
    alone: dict[tuple[str, int], int] = {}
    while (claim := driver.claim()).units:
        items = [(u.task_id, u.first + i) for u in claim.units for i in range(u.items)]
        if not poison & set(items):
            driver.commit(claim)
            continue
        if len(items) == 1 and claim.units[0].attempts > 1:
            alone[items[0]] = alone.get(items[0], 0) + 1
        dies(driver, claim)
    return alone


@pytest.mark.parametrize("size", [1, 4])
def test_only_an_item_that_died_alone_three_times_fails(driver: Driver, size: int) -> None:
    task_id = driver.submit((size, 10 * size), (4, 40)).task_id
    neighbour = driver.submit((2, 20)).task_id
    poison = {(task_id, size - 1)}
    assert run_until_quiet(driver, poison) == {(task_id, size - 1): 3}
    result = driver.result(task_id)
    assert (result.task.state, result.task.completed, result.task.failed) == (State.COMPLETED, size + 3, 1)
    assert {index: error.code for index, error in result.errors.items()} == {size - 1: "worker_lost"}
    assert driver.task(neighbour).state is State.COMPLETED
    assert driver.task(neighbour).failed == 0


def test_a_task_of_nothing_but_poison_fails(driver: Driver) -> None:
    task_id = driver.submit((2, 20)).task_id
    run_until_quiet(driver, {(task_id, 0), (task_id, 1)})
    assert driver.task(task_id).state is State.FAILED
    assert driver.watch().leases == 0


def test_rolling_restarts_never_convict_an_innocent(driver: Driver) -> None:
    task_id = driver.submit((3, 30)).task_id
    dies(driver, driver.claim())
    for _ in range(20):
        claim = driver.claim()
        assert claim.units[0].attempts == 2
        driver.release(claim)
    assert {u.attempts for u in driver.work_off()} == {2}
    assert driver.task(task_id).state is State.COMPLETED


def test_released_units_are_not_suspects(driver: Driver) -> None:
    driver.submit((3, 30), (2, 20))
    first = driver.claim()
    driver.release(first)
    again = driver.claim()
    assert sorted(places(again.units)) == sorted(places(first.units))
    assert {u.attempts for u in again.units} == {1}


def test_releasing_again_gives_nothing_back_that_another_holds(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    claim = driver.claim()
    driver.release(claim)
    driver.release(claim)
    assert len(driver.claim("other").units) == 2
    assert driver.release(claim) is False
    assert driver.watch().leases == 1
    assert driver.task(task_id).completed == 0


def test_what_was_committed_before_a_release_stays_done(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0])])
    driver.release(claim)
    assert places(driver.work_off()) == [(task_id, 1, 1)]


def test_what_a_dead_worker_had_committed_stays_done(driver: Driver) -> None:
    task_id = driver.submit((2, 10), (2, 10)).task_id
    claim = driver.claim()
    driver.commit(claim, [finished(claim.units[0], mark=7)])
    dies(driver, claim)
    assert places(driver.work_off()) == [(task_id, 2, 1), (task_id, 3, 1)]
    assert driver.result(task_id).vectors[:, 1].tolist() == [7, 7, 0, 0]


def test_abandoned_claims_come_back_before_their_lease_ends(driver: Driver) -> None:
    driver.submit((2, 20), (1, 10))
    mine = driver.claim("w", max_units=1)
    other = driver.claim("w2", max_units=1)
    driver.run(operations.abandon("m", "w"))
    assert driver.commit(mine) == [0]
    assert driver.watch().leases == 1
    assert [u.attempts for u in driver.work_off()] == [2, 2]
    assert driver.commit(other) == [1]


def test_abandoning_again_changes_nothing(driver: Driver) -> None:
    driver.submit()
    driver.claim("w")
    driver.run(operations.abandon("m", "w"))
    held = driver.claim("other")
    driver.run(operations.abandon("m", "w"))
    assert driver.commit(held) == [1]


def test_a_claim_returns_only_so_many_leases_that_it_stays_short(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 5)
    for number in range(5):
        driver.claim(f"w{number}", max_units=1)
    driver.advance(LEASE_MS)
    assert [driver.watch().leases for _ in range(3)] == [3, 1, 0]


def test_a_claim_declared_lost_comes_back_at_once_as_suspects(driver: Driver) -> None:
    task_id = driver.submit((2, 20), (1, 10)).task_id
    claim = driver.claim(heard=True)
    driver.commit(claim, [finished(claim.units[1])])
    assert driver.run(operations.lose("m", claim.token)), "nobody was told of the work"
    assert not driver.run(operations.lose("m", claim.token)), "the bell rang twice"
    assert driver.commit(claim) == [0, 2]
    assert [(u.first, u.attempts) for u in driver.work_off()] == [(0, 2), (1, 2)]
    assert driver.task(task_id).completed == 3

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


def suspect(driver: Driver, worker: str = "w") -> Claim:
    """The suspect whose turn it is."""
    return driver.claim(worker, suspect=True)


def test_a_lost_unit_comes_back_as_single_items_each_claimed_alone(driver: Driver) -> None:
    task_id = driver.submit((3, 30), (2, 20)).task_id
    dies(driver, driver.claim())
    seen = []
    for _ in range(5):
        assert driver.claim().units == (), "a suspect was taken for work like any other"
        claim = suspect(driver)
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


@pytest.mark.parametrize("online_only", [False, True])
def test_suspects_do_not_stand_in_the_way_of_others(driver: Driver, online_only: bool) -> None:
    for number in range(40):
        driver.submit(task_id=f"old-{number}")
    dies(driver, driver.claim())
    fresh = [driver.submit(owner=owner).task_id for owner in ("anonymous", "b")]
    claim = driver.claim(online_only=online_only)
    assert sorted(unit.task_id for unit in claim.units) == sorted(fresh)
    assert (claim.suspects, claim.more) == (True, True)


def test_who_finds_nothing_else_is_told_of_suspects_and_does_not_linger(driver: Driver) -> None:
    driver.submit((2, 20), lane=Lane.BULK)
    dies(driver, driver.claim())
    idle = driver.claim(linger_ms=800)
    assert (idle.units, idle.suspects, idle.more, idle.wait_ms) == ((), True, True, 0)
    claims = [suspect(driver) for _ in range(3)]
    assert [(claim.lane, len(claim.units)) for claim in claims] == [(Lane.BULK, 1), (Lane.BULK, 1), (None, 0)]
    assert [claim.suspects for claim in claims] == [True, False, False]
    assert driver.claim(linger_ms=800).wait_ms == 800, "nothing is ready any more"


def test_a_claim_of_a_suspect_whose_reply_was_lost_gives_the_same_one(driver: Driver) -> None:
    driver.submit((2, 20))
    dies(driver, driver.claim())
    first = driver.claim("w", token="w/x", suspect=True)
    assert driver.claim("w", token="w/x", suspect=True) == first


def test_a_claim_of_a_suspect_takes_nothing_else_and_does_not_linger(driver: Driver) -> None:
    driver.submit()
    claim = driver.claim(suspect=True, linger_ms=800)
    assert (claim.units, claim.suspects, claim.more, claim.wait_ms) == ((), False, True, 0)


def test_suspects_of_owners_and_tasks_take_turns_by_cost(driver: Driver) -> None:
    driver.submit((20, 400), task_id="a-large", owner="a")
    for name in ("a-small", "b-small"):
        driver.submit((1, 20), task_id=name, owner=name[0])
    dies(driver, driver.claim())
    order = [unit.task_id for unit in driver.work_off()]
    assert order.index("b-small") <= 1, "an owner of one waits for all of another's"
    assert order.index("a-small") <= 3, "a task of one waits for all of another's"


def test_suspects_are_not_charged_to_their_lane(driver: Driver) -> None:
    driver.submit((1, 10), lane=Lane.BULK)
    dies(driver, driver.claim())
    driver.submit(lane=Lane.BULK)
    before = driver.client.hget("eq:q:m:state", "credit")
    assert suspect(driver).units
    assert driver.client.hget("eq:q:m:state", "credit") == before


@pytest.mark.parametrize("how", ["cancel", "forget", "expire"])
def test_suspects_of_a_task_that_ends_go_with_it(driver: Driver, how: str) -> None:
    task_id = driver.submit((3, 30), deadline_in_ms=2 * LEASE_MS).task_id
    dies(driver, driver.claim())
    assert driver.watch().ready == 1
    if how == "expire":
        driver.advance(LEASE_MS)
    else:
        getattr(driver, how)(task_id)
    assert suspect(driver).units == ()
    assert driver.watch().ready == 0
    assert not driver.client.exists("eq:q:m:suspects", "eq:q:m:suspects:anonymous", f"eq:suspects:{task_id}")


def test_a_suspect_that_is_given_back_stays_one(driver: Driver) -> None:
    driver.submit()
    dies(driver, driver.claim(rang=True))
    claim = driver.claim(suspect=True, rang=True)
    assert driver.release(claim), "nobody was told of the work"
    assert driver.claim().units == ()
    assert suspect(driver).units == claim.units


def test_watch_rings_for_nothing_but_suspects(driver: Driver) -> None:
    driver.submit()
    driver.claim(rang=True)
    driver.advance(LEASE_MS)
    seen = driver.watch()
    assert (seen.bell_due, seen.ready) == (True, 1)


@pytest.mark.parametrize("how", ["abandon", "reap"])
def test_what_stands_still_beside_a_suspect_does_not_die_with_it(driver: Driver, how: str) -> None:
    poison = driver.submit().task_id
    dies(driver, driver.claim())
    driver.watch()
    work = driver.submit((4, 40), lane=Lane.BULK).task_id
    beside, other = driver.claim("w/0"), driver.submit(lane=Lane.BULK).task_id
    elsewhere = driver.claim("w2/0")
    driver.advance(1)
    assert suspect(driver, "w/1").units[0].task_id == poison
    if how == "abandon":
        driver.run(operations.abandon("m", "w"))
        driver.advance(LEASE_MS)
    else:
        driver.advance(LEASE_MS - 1)  # the claim beside it was renewed last, and ends first
        assert driver.watch().leases == 1
        driver.advance(1)
    driver.watch()
    assert driver.commit(beside) == [0]
    again = driver.claim("w3/0")
    assert [(u.task_id, u.items, u.attempts) for u in again.units] == [(work, 4, 1)], "it was not to blame"
    suspects = [suspect(driver, f"w{n}/0").units[0] for n in (4, 5)]
    assert {(u.task_id, u.attempts) for u in suspects} == {(poison, 3), (other, 2)}
    assert elsewhere.units[0].task_id == other
    seen = driver.run(operations.overview("m"))["m"]
    assert seen.counters["lost_leases"] == 3, "once in company, once alone, and the other worker's"


def test_a_suspect_declared_lost_leaves_the_other_claims_of_its_worker(driver: Driver) -> None:
    driver.submit()
    dies(driver, driver.claim())
    driver.watch()
    driver.submit(lane=Lane.BULK)
    beside, alone = driver.claim("w/0"), suspect(driver, "w/1")
    driver.run(operations.lose("m", alone.token))
    assert driver.commit(beside) == [1]


def run_until_quiet(driver: Driver, poison: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Works everything off with workers that die of poisonous items; how often each item died alone."""
    alone: dict[tuple[str, int], int] = {}
    while (claim := driver.claim_any()).units:
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
        claim = suspect(driver)
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
    held = suspect(driver, "other")
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
    claim = driver.claim(rang=True)
    driver.commit(claim, [finished(claim.units[1])])
    assert driver.run(operations.lose("m", claim.token)), "nobody was told of the work"
    assert not driver.run(operations.lose("m", claim.token)), "the bell rang twice"
    assert driver.commit(claim) == [0, 2]
    assert [(u.first, u.attempts) for u in driver.work_off()] == [(0, 2), (1, 2)]
    assert driver.task(task_id).completed == 3

"""Fairness by cost: between lanes, between owners of a lane, and between tasks of an owner."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tasks.ledger import ClaimedUnit, Lane, operations
from tests.integration.ledger.driver import Driver


def served(driver: Driver, budget: int = 50) -> Iterator[ClaimedUnit]:
    """What a worker gets, unit by unit, for as long as there is something."""
    while (claim := driver.claim(budget=budget)).units:
        yield from claim.units
        driver.commit(claim)


def largest_lead(units: list[ClaimedUnit], group: Callable[[ClaimedUnit], str], a: str, b: str) -> int:
    """The largest difference in cost served between two groups, as long as both have more to come."""
    last = {name: max(i for i, u in enumerate(units) if group(u) == name) for name in (a, b)}
    leads, cost = [0], Counter[str]()
    for unit in units[: min(last.values())]:
        cost[group(unit)] += unit.cost
        leads.append(abs(cost[a] - cost[b]))
    return max(leads)


def owner_of(unit: ClaimedUnit) -> str:
    return unit.task_id.split("-")[0]


@pytest.mark.parametrize(("cost_a", "cost_b"), [(10, 10), (90, 10), (1, 40)])
def test_owners_share_by_cost_although_one_has_many_more_tasks(driver: Driver, cost_a: int, cost_b: int) -> None:
    for number in range(600):
        driver.submit((1, cost_a), task_id=f"a-{number}", owner="a")
    for number in range(6):
        driver.submit((1, cost_b), (1, cost_b), task_id=f"b-{number}", owner="b")
    units = list(itertools.takewhile(lambda u: u.task_id != "b-5" or u.first == 0, served(driver)))
    assert largest_lead(units, owner_of, "a", "b") <= cost_a + cost_b


def test_three_owners_share_alike(driver: Driver) -> None:
    for owner, tasks in (("a", 300), ("b", 30), ("c", 12)):
        for number in range(tasks):
            driver.submit((1, 10), task_id=f"{owner}-{number}", owner=owner)
    cost = Counter(owner_of(unit) for unit in itertools.islice(served(driver), 30))
    assert cost == {"a": 10, "b": 10, "c": 10}


def test_an_owner_that_comes_late_is_neither_repaid_nor_made_to_wait(driver: Driver) -> None:
    for number in range(400):
        driver.submit((1, 10), task_id=f"a-{number}", owner="a")
    work = served(driver)
    for _ in itertools.islice(work, 100):
        pass
    for number in range(100):
        driver.submit((1, 10), task_id=f"b-{number}", owner="b")
    units = list(itertools.islice(work, 104))[4:]  # what was claimed before b came is served first
    assert {owner: abs(50 - n) <= 1 for owner, n in Counter(owner_of(u) for u in units).items()} == {
        "a": True,
        "b": True,
    }


def test_coming_and_going_gains_nothing(driver: Driver) -> None:
    """An owner whose tasks are so short that its line is often empty is still charged for them."""
    for number in range(50):
        driver.submit((1, 10), task_id=f"a-{number}", owner="a")
    cost = Counter[str]()
    for number in range(20):
        driver.submit((1, 10), task_id=f"b-{number}", owner="b")
        claim = driver.claim(max_units=2)
        driver.commit(claim)
        cost.update(owner_of(unit) for unit in claim.units)
    assert cost["a"] >= 19


def test_a_huge_task_does_not_starve_small_ones_of_the_same_owner(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 1000, task_id="huge")
    first = driver.claim(max_units=1)
    driver.commit(first)
    for number in range(5):
        driver.submit((1, 10), (1, 10), task_id=f"small-{number}")
    order = [unit.task_id for unit in itertools.islice(served(driver), 24)]
    small = [place for place, task_id in enumerate(order) if task_id != "huge"]
    assert len(small) == 10, "small tasks wait for the huge one"
    assert order.count("huge") >= 2, "the huge task waits for all small ones"


def test_a_stream_of_small_tasks_does_not_starve_a_huge_one(driver: Driver) -> None:
    driver.submit(*[(1, 40)] * 10, task_id="huge")
    cost = Counter[str]()
    for number in range(100):
        for half in "ab":
            driver.submit((1, 10), task_id=f"small-{number}{half}")
        claim = driver.claim(max_units=2, budget=50)
        driver.commit(claim)
        for unit in claim.units:
            cost[owner_of(unit)] += unit.cost
    assert cost["huge"] >= 300, "the huge task was passed over"


def test_tasks_of_one_owner_take_turns_by_cost(driver: Driver) -> None:
    driver.submit(*[(1, 30)] * 20, task_id="a-0")
    driver.submit(*[(1, 10)] * 60, task_id="b-0")
    units = list(served(driver, budget=30))
    assert largest_lead(units, owner_of, "a", "b") <= 2 * (30 + 10)


def test_a_unit_that_did_not_fit_keeps_its_turn(driver: Driver) -> None:
    driver.submit((1, 10), task_id="first")
    driver.submit((1, 60), task_id="large")
    driver.submit((1, 70), task_id="later")
    assert [u.task_id for u in driver.claim(budget=50).units] == ["first"]
    assert [u.task_id for u in driver.claim(budget=50).units] == ["large"]


def fill_lanes(driver: Driver, online: int, bulk: int, cost: int = 10) -> None:
    for lane, tasks in ((Lane.ONLINE, online), (Lane.BULK, bulk)):
        for number in range(tasks):
            driver.submit(*[(1, cost)] * 10, task_id=f"{lane}-{number}", lane=lane)


@pytest.mark.parametrize("budget", [10, 35, 100])
def test_bulk_gets_an_eighth_of_the_cost_while_online_floods(driver: Driver, budget: int) -> None:
    fill_lanes(driver, online=120, bulk=30)
    cost = Counter[str]()
    for unit in itertools.islice(served(driver, budget), 800):
        cost[owner_of(unit)] += unit.cost
    assert cost["bulk"] / cost.total() == pytest.approx(1 / 8, abs=0.02)


def test_bulk_gets_an_eighth_although_its_units_are_larger(driver: Driver) -> None:
    fill_lanes(driver, online=100, bulk=0)
    driver.submit(*[(1, 300)] * 50, task_id="bulk-0", lane=Lane.BULK)
    cost = Counter[str]()
    for unit in itertools.islice(served(driver, 100), 700):
        cost[owner_of(unit)] += unit.cost
    assert cost["bulk"] / cost.total() == pytest.approx(1 / 8, abs=0.03)


def test_online_goes_first(driver: Driver) -> None:
    fill_lanes(driver, online=1, bulk=1)
    assert [owner_of(unit) for unit in served(driver, 20)] == ["online"] * 10 + ["bulk"] * 10


def test_a_claim_takes_from_one_lane(driver: Driver) -> None:
    fill_lanes(driver, online=1, bulk=1)
    assert {owner_of(u) for u in driver.claim().units} == {"online"}
    assert {owner_of(u) for u in driver.claim().units} == {"bulk"}


def test_bulk_saves_no_share_for_later_while_it_has_no_work(driver: Driver) -> None:
    fill_lanes(driver, online=50, bulk=0)
    for _ in itertools.islice(served(driver, 50), 300):
        pass
    driver.submit(*[(1, 10)] * 50, task_id="bulk-0", lane=Lane.BULK)
    units = list(itertools.islice(served(driver, 50), 30))
    assert {owner_of(unit) for unit in units} == {"online"}


def test_a_look_at_the_online_lane_takes_no_bulk_work(driver: Driver) -> None:
    fill_lanes(driver, online=1, bulk=1)
    assert {owner_of(u) for u in driver.claim(online_only=True).units} == {"online"}
    assert driver.claim(online_only=True).units == ()
    assert {owner_of(u) for u in driver.claim().units} == {"bulk"}


def test_an_owner_pays_for_what_took_more_than_it_said(driver: Driver) -> None:
    for owner in "ab":
        for number in range(40):
            driver.submit((1, 1), task_id=f"{owner}-{number}", owner=owner)
    order = []
    for _ in range(60):
        claim = driver.claim(max_units=1)
        (unit,) = claim.units
        order.append(owner_of(unit))
        if owner_of(unit) == "a":
            assert driver.run(operations.charge(driver.model, unit.task_id, 9))
            assert not driver.run(operations.charge(driver.model, unit.task_id, 9)), "the first answer was lost"
        driver.commit(claim)
        assert not driver.run(operations.charge(driver.model, unit.task_id, 20)), "it has ended"
    until_b_is_through = order[: max(i for i, owner in enumerate(order) if owner == "b")]
    assert 3 <= until_b_is_through.count("a") <= 5, "a tenth of what b got"


def test_what_is_charged_is_remembered_while_the_owner_has_nothing(driver: Driver) -> None:
    driver.submit((1, 1), task_id="a-0", owner="a")
    claim = driver.claim()
    assert driver.run(operations.charge(driver.model, "a-0", 50))
    driver.commit(claim)
    for owner in "ab":
        for number in range(30):
            driver.submit((1, 1), task_id=f"{owner}-{number + 1}", owner=owner)
    first = [owner_of(driver.claim(max_units=1).units[0]) for _ in range(30)]
    assert first.count("b") >= 29
    assert not driver.run(operations.charge(driver.model, "nobody", 5))


def test_calls_whose_callers_have_gone_go_behind_those_of_callers_who_wait(driver: Driver) -> None:
    gone = [driver.submit(deadline_in_ms=9_000).task_id for _ in range(3)]
    awaited = [driver.submit(deadline_in_ms=60_000).task_id for _ in range(3)]
    repeated = gone.pop()
    driver.run(operations.want("m", repeated, 60_000, shorten=False))
    listed = driver.submit(deadline_in_ms=9_000, listed=True).task_id

    order = [driver.claim(max_units=1).units[0].task_id for _ in range(7)]

    assert order == [repeated, *awaited, listed, *gone]


def test_a_call_that_cannot_be_answered_in_time_goes_behind_those_that_can(driver: Driver) -> None:
    late, short = (driver.submit(deadline_in_ms=10_000 + wait_ms).task_id for wait_ms in (4_000, 3_900))
    driver.advance(3_600)
    awaited = driver.submit(deadline_in_ms=14_000).task_id
    hasty = driver.submit(deadline_in_ms=10_100).task_id  # it has waited for none of its tenth of a second

    order = [driver.claim(max_units=1).units[0].task_id for _ in range(4)]

    assert order == [awaited, hasty, late, short]


def test_calls_without_callers_are_served_when_nobody_waits(driver: Driver) -> None:
    gone = {driver.submit(deadline_in_ms=9_000).task_id for _ in range(100)}
    claims = [driver.claim(max_units=10).units for _ in range(10)]
    assert {unit.task_id for units in claims for unit in units} == gone
    assert {len(units) for units in claims} == {10}

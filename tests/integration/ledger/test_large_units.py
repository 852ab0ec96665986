"""Large units of the online lane are parts of lists: a claim has several, and small units do not wait for them."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from tasks.ledger import Claim, Lane, State
from tests.integration.ledger.driver import Driver

LINE = 100
"""A unit of several texts that costs as much is large."""
LARGE, SMALL, LONG_TEXT = (8, LINE), (1, 10), (1, LINE)
PASSED_OVER = 64


@pytest.fixture
def claim(driver: Driver) -> Callable[..., Claim]:
    """Claims up to 100 of small units and 400 of large ones."""

    def call(**changed: Any) -> Claim:
        return driver.claim(online_budget=LINE, large_budget=4 * LINE, **changed)

    return call


@pytest.fixture
def look(claim: Callable[..., Claim]) -> Callable[[], Claim]:
    """Looks for small units, as beside large ones."""
    return lambda: claim(online_only=True, small_only=True)


def sizes(claim: Claim) -> list[tuple[int, int]]:
    return [(unit.items, unit.cost) for unit in claim.units]


def test_a_claim_has_large_units_up_to_a_budget_of_their_own(driver: Driver, claim: Callable[..., Claim]) -> None:
    driver.submit(*[LARGE] * 6)
    assert sizes(claim()) == [LARGE] * 4
    assert sizes(claim()) == [LARGE] * 2


def test_without_a_budget_of_their_own_they_have_that_of_others(driver: Driver) -> None:
    driver.submit(*[LARGE] * 2)
    assert sizes(driver.claim(online_budget=LINE)) == [LARGE]


@pytest.mark.parametrize("other", [SMALL, LONG_TEXT, (2, LINE - 1)])
def test_large_units_have_a_claim_to_themselves(
    driver: Driver, claim: Callable[..., Claim], other: tuple[int, int]
) -> None:
    driver.submit(*[LARGE] * 2, task_id="a")
    driver.submit(other, task_id="b")
    driver.submit(*[LARGE] * 2, task_id="c")
    claims = [sizes(claim()) for _ in range(4)]
    assert sorted(size for taken in claims for size in taken) == sorted([*[LARGE] * 4, other])
    assert [other] in claims


def test_a_long_text_is_claimed_alone(driver: Driver, claim: Callable[..., Claim]) -> None:
    for _ in range(2):
        driver.submit(LONG_TEXT)
    assert sizes(claim()) == [LONG_TEXT]


def test_bulk_work_has_no_large_units(driver: Driver, claim: Callable[..., Claim]) -> None:
    driver.submit(LARGE, SMALL, LARGE, lane=Lane.BULK)
    assert sizes(claim()) == [LARGE, SMALL, LARGE]


def test_a_look_for_small_units_takes_those_behind_large_ones(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    for _ in range(PASSED_OVER - 3):
        driver.submit(*[LARGE] * 2)
    driver.submit(LONG_TEXT)
    driver.submit(SMALL)
    driver.submit(SMALL, LARGE)
    assert [sizes(look()) for _ in range(3)] == [[SMALL], [LONG_TEXT], []]
    assert [sizes(claim()) for _ in range(2)] == [[SMALL], [LARGE] * 4], "the small part of a list goes with the list"


def test_a_look_passes_over_so_many_and_no_more(driver: Driver, look: Callable[[], Claim]) -> None:
    for _ in range(PASSED_OVER):
        driver.submit((8, LINE))
    driver.submit((1, 2 * LINE))
    assert look().units == ()


def test_a_unit_that_came_back_is_as_large_as_before(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    driver.submit(LARGE)
    driver.release(claim())
    assert look().units == ()
    driver.submit(SMALL)
    driver.release(look())
    assert sizes(look()) == [SMALL]


def test_a_look_ends_tasks_that_nobody_wants_any_more(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    driver.submit(*[LARGE] * 2)
    late, gone = (driver.submit(SMALL, deadline_in_ms=ms).task_id for ms in (100, 60_000))
    driver.submit(SMALL)
    driver.cancel(gone)
    driver.advance(200)
    assert sizes(look()) == [SMALL]
    assert [driver.task(task_id).state for task_id in (late, gone)] == [State.EXPIRED, State.CANCELLED]
    assert sizes(claim()) == [LARGE] * 2


def test_looks_find_small_units_behind_many_lists_round_after_round(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    for _ in range(30):
        driver.submit(*[LARGE] * 8)
    for _ in range(40):
        for _ in range(3):
            driver.submit(SMALL)
            assert sizes(look()) == [SMALL], "it is behind those that were passed over"
        driver.commit(claim())


def test_small_units_are_taken_in_their_order(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    for _ in range(8):
        driver.submit(*[LARGE] * 8)
    for _ in range(20):
        driver.submit((1, 90), task_id=f"waits-{_}")
    claimed = []
    for number in range(40):
        driver.submit((1, 90), task_id=f"late-{number}")
        claimed += [unit.task_id for unit in look().units]
        if number % 4 == 3:
            claimed += [unit.task_id for unit in claim().units]
    assert {f"waits-{number}" for number in range(20)} <= set(claimed), "later ones went first again and again"


def test_a_look_waits_for_the_turn_of_an_owner_with_large_units(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim]
) -> None:
    def served() -> int:
        return sum(cost for _ in range(20) for _, cost in sizes(look()))

    driver.submit(*[LARGE] * 8, owner="a")
    assert sizes(claim()) == [LARGE] * 4
    for _ in range(40):
        driver.submit((1, 30), owner="b")
    assert 4 * LINE <= served() <= 4 * LINE + 30, "as much as the other one has taken in advance"
    assert sizes(claim()) == [LARGE], "then it is the turn of the other one, and at once that of the small units again"
    assert LINE - 30 <= served() <= LINE + 30


def test_a_look_that_finds_large_units_alone_writes_nothing(
    driver: Driver, claim: Callable[..., Claim], look: Callable[[], Claim], redis_client: redis.Redis
) -> None:
    for _ in range(3):
        driver.submit(*[LARGE] * 6)
    claim(rang=True)  # leaves some, and rings for them
    before = redis_client.info("persistence")["rdb_changes_since_last_save"]
    assert look().units == ()
    assert redis_client.info("persistence")["rdb_changes_since_last_save"] == before
    assert sizes(claim()) == [LARGE] * 4

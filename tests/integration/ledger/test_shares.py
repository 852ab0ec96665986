"""Work is shared among streams by their speed: callers that come back together must not be served by one of them."""

import pytest

from tasks.ledger import Lane, operations
from tests.integration.ledger.driver import Driver
from tests.ledger_builders import worker_entry


def taken(driver: Driver, *, rate: float, alone: bool = False) -> int:
    return len(driver.claim("w/0", rate=rate, alone=alone).units)


@pytest.fixture
def fast(driver: Driver) -> Driver:
    """A ledger whose workers do 100 tokens per second together."""
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    return driver


@pytest.mark.parametrize(
    ("waiting", "rate", "expected"), [(10, 100, 10), (10, 50, 5), (9, 50, 4), (1, 25, 1), (8, 12.5, 1), (10, 0, 10)]
)
def test_a_claim_takes_its_streams_part(fast: Driver, waiting: int, rate: float, expected: int) -> None:
    for _ in range(waiting):
        fast.submit()
    assert taken(fast, rate=rate) == expected


@pytest.mark.parametrize(
    ("waiting", "rate", "expected"), [(12, 100, 12), (12, 50, 3), (11, 50, 2), (1, 25, 1), (8, 25, 1), (12, 0, 12)]
)
def test_a_claim_of_bulk_work_takes_half_of_it(fast: Driver, waiting: int, rate: float, expected: int) -> None:
    for _ in range(waiting):
        fast.submit(lane=Lane.BULK)
    assert taken(fast, rate=rate) == expected


def test_claims_of_bulk_work_become_smaller_towards_its_end(fast: Driver) -> None:
    fast.submit(*[(1, 10)] * 32, lane=Lane.BULK)
    sizes = []
    while (claim := fast.claim("w/0", rate=50, alone=False)).units:
        sizes.append(len(claim.units))
        fast.commit(claim)
    assert sizes == [8, 6, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1]


def test_units_of_one_task_are_shared_like_tasks(fast: Driver) -> None:
    fast.submit(*[(1, 10)] * 8)
    assert taken(fast, rate=50) == 4


def test_a_long_list_is_shared_too(fast: Driver) -> None:
    fast.submit(*[(8, 10)] * 8)
    claim = fast.claim("w/0", rate=50, alone=False, online_budget=10, large_budget=1000)
    assert len(claim.units) == 4


def test_what_others_hold_counts_so_the_rest_is_not_left_to_one(fast: Driver) -> None:
    fast.submit()
    fast.claim("w/1", rate=50, alone=False)
    for _ in range(9):
        fast.submit()
    assert taken(fast, rate=50) == 5


def test_who_is_alone_takes_everything(fast: Driver) -> None:
    for _ in range(10):
        fast.submit()
    assert taken(fast, rate=50, alone=True) == 10


def test_workers_of_one_stream_each_share_like_streams_of_one_worker(driver: Driver) -> None:
    for name in "vw":
        driver.run(operations.beat("m", worker_entry(name, 50.0), ttl_ms=10_000))
    for _ in range(10):
        driver.submit()
    claims = [driver.claim(f"{name}/0", rate=50, alone=True) for name in "vw"]
    assert [len(claim.units) for claim in claims] == [5, 5]


def test_who_is_alone_in_its_process_stands_for_all_streams_of_it(driver: Driver) -> None:
    for name, rate in (("v", 20.0), ("w", 80.0)):  # w has two streams of 40 each
        driver.run(operations.beat("m", worker_entry(name, rate), ttl_ms=10_000))
    for _ in range(10):
        driver.submit()
    assert taken(driver, rate=40, alone=True) == 8


@pytest.mark.parametrize("reported", [1000.4, 1000.6])
def test_the_only_worker_takes_everything_whatever_it_measured_since(driver: Driver, reported: float) -> None:
    driver.run(operations.beat("m", worker_entry("w", reported), ttl_ms=10_000))
    for _ in range(3):
        driver.submit((1, 10_000))
    assert len(driver.claim("w/0", rate=900, alone=True, budget=10**6).units) == 3


def test_the_budget_still_counts(fast: Driver) -> None:
    for _ in range(10):
        fast.submit()
    assert len(fast.claim("w/0", rate=90, alone=False, budget=30).units) == 3


def test_without_a_known_rate_nothing_is_held_back(driver: Driver) -> None:
    for _ in range(10):
        driver.submit()
    assert taken(driver, rate=50) == 10


def test_what_is_passed_over_keeps_its_turn(fast: Driver) -> None:
    ids = [fast.submit().task_id for _ in range(4)]
    claimed = [unit.task_id for _ in range(2) for unit in fast.claim("w/0", rate=50, alone=False).units]
    assert claimed == ids

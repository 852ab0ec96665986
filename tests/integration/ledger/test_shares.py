"""Those who wait are shared among the streams: callers that come back together must not be served by one of them."""

import pytest

from tasks.ledger import Lane, operations
from tests.integration.ledger.driver import Driver
from tests.integration.ledger.test_admission import worker


def tasks_of(driver: Driver, streams: int) -> int:
    return len({unit.task_id for unit in driver.claim("w/0", streams=streams).units})


@pytest.mark.parametrize(("waiting", "streams", "expected"), [(10, 1, 10), (10, 2, 5), (9, 2, 5), (1, 4, 1)])
def test_a_claim_takes_its_streams_share(driver: Driver, waiting: int, streams: int, expected: int) -> None:
    for _ in range(waiting):
        driver.submit()
    assert tasks_of(driver, streams=streams) == expected


def test_what_others_hold_counts_so_the_rest_is_not_left_to_one(driver: Driver) -> None:
    driver.submit()
    driver.claim("w/1", streams=2)
    for _ in range(9):
        driver.submit()
    assert tasks_of(driver, streams=2) == 5


def test_every_live_worker_has_its_streams(driver: Driver) -> None:
    for name in ("w", "v"):
        driver.run(operations.beat("m", worker(name, 100.0), ttl_ms=10_000))
    for _ in range(8):
        driver.submit()
    assert tasks_of(driver, streams=2) == 2


def test_one_task_of_many_units_is_not_cut(driver: Driver) -> None:
    driver.submit(*[(1, 10)] * 20)
    assert len(driver.claim("w/0", streams=4).units) == 20


def test_bulk_work_is_not_shared_out(driver: Driver) -> None:
    for _ in range(10):
        driver.submit(lane=Lane.BULK)
    assert tasks_of(driver, streams=4) == 10


def test_what_is_passed_over_keeps_its_turn(driver: Driver) -> None:
    ids = [driver.submit().task_id for _ in range(4)]
    claimed = [unit.task_id for _ in range(2) for unit in driver.claim("w/0", streams=2).units]
    assert claimed == ids

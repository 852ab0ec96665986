"""The steps of the service's last hour in Redis."""

import pytest
import redis

from tasks.errors import StorageFull
from tasks.records.history import HistoryStep, ProcessCounts, SharedFigures, read_steps, write_step
from tests.integration.ledger.driver import Driver

STEP = 180_000_000
COUNTS = ProcessCounts(seconds=10.001, queries={-52: 7, 3: 1}, errors=2)
OTHER = ProcessCounts(seconds=9.5, queries={}, errors=0)
SHARED = SharedFigures(passages=12.5, backlog_s=0.25)


def test_what_is_written_is_read(driver: Driver) -> None:
    driver.ledger.run(write_step(STEP, "a", COUNTS, None))
    now_s = driver.ledger.run(write_step(STEP, "b", OTHER, SHARED))
    driver.ledger.run(write_step(STEP + 2, "a", OTHER, None))

    read = driver.ledger.run(read_steps(STEP - 1, STEP + 2))

    assert read.now_s == now_s == driver.now_ms / 1000
    nothing = HistoryStep([], None)
    assert [read.steps[0], *read.steps[2:]] == [nothing, nothing, HistoryStep([OTHER], None)]
    assert read.steps[1].shared == SHARED
    assert sorted(read.steps[1].processes, key=lambda counts: counts.seconds) == [OTHER, COUNTS]
    assert driver.ledger.run(read_steps(0, -1)).steps == []


def test_writing_twice_counts_once_and_what_is_shared_is_the_last_that_somebody_knew(driver: Driver) -> None:
    newer = SharedFigures(passages=None, backlog_s=1.0)
    for process, shared in (("a", SHARED), ("a", newer), ("b", None)):
        driver.ledger.run(write_step(STEP, process, COUNTS, shared))

    assert driver.ledger.run(read_steps(STEP, STEP)).steps == [HistoryStep([COUNTS, COUNTS], newer)]


def test_an_hour_later_it_is_gone(driver: Driver, redis_client: redis.Redis) -> None:
    driver.ledger.run(write_step(STEP, "a", COUNTS, SHARED))

    assert [3600 < redis_client.ttl(key) <= 3720 for key in redis_client.keys("eq:history:*")] == [True]


def test_a_full_redis_refuses_it(driver: Driver, redis_client: redis.Redis) -> None:
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StorageFull):
            driver.ledger.run(write_step(STEP, "a", COUNTS, SHARED))
    finally:
        redis_client.config_set("maxmemory", limit)
    assert redis_client.keys("eq:history:*") == []

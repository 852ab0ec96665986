"""Where open tasks stand: how much work is before them, how their workers fare, and since when nobody serves them."""

import redis

from tasks.ledger import Lane, State, operations
from tasks.ledger.standing import Standings, TaskStanding, read_standings
from tests.integration.ledger.driver import LEASE_MS, Driver, commands
from tests.ledger_builders import worker_entry


def standings(driver: Driver, *task_ids: str, queues: tuple[str, ...] = ()) -> Standings:
    return driver.run(read_standings(queues, task_ids))


def standing(driver: Driver, task_id: str) -> TaskStanding:
    return standings(driver, task_id).tasks[task_id]


def test_a_task_whose_units_are_all_handed_out_is_in_progress(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    driver.claim()
    seen = standing(driver, task_id)
    assert (seen.state, seen.cost, seen.died_ms) == (State.IN_PROGRESS, 20, 0)


def test_the_work_before_a_task_is_what_fair_turns_let_go_first(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    driver.submit((100, 10_000), owner="a", lane=Lane.BULK)
    small = driver.submit((10, 500), owner="a", lane=Lane.BULK).task_id
    other = driver.submit((10, 500), owner="b", lane=Lane.BULK).task_id
    assert (standing(driver, small).cost_before, standing(driver, small).seconds_before) == (1000, 10.0)
    assert (standing(driver, other).cost_before, standing(driver, other).seconds_left) == (500, 10.0)
    driver.submit((1, 3000), owner="c", lane=Lane.ONLINE)
    assert standing(driver, small).cost_before == 4000


def test_tasks_that_are_not_open_have_no_standing(driver: Driver) -> None:
    ended = driver.submit((1, 10)).task_id
    driver.work_off()
    assert standings(driver, ended, "task_unknown").tasks == {}


def test_queues_are_told_whether_or_not_anything_waits_in_them(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    seen = standings(driver, queues=("m", "other"))
    assert (seen.queue("m").workers, seen.queue("m").rate) == (1, 100.0)
    assert (seen.queue("other").workers, seen.queue("other").absent_ms) == (0, None)


def test_a_queue_knows_since_when_nobody_serves_it(driver: Driver) -> None:
    beat = operations.beat("m", worker_entry("w", 100.0), ttl_ms=9000)
    driver.run(beat)
    last = driver.now_ms + 9000
    driver.advance(20_000)
    noticed = standings(driver, queues=("m",)).queue("m")
    assert (noticed.workers, noticed.absent_ms) == (0, last), "before anybody has taken it off the list"
    driver.watch()
    assert standings(driver, queues=("m",)).queue("m").absent_ms == last
    driver.advance(1000)
    driver.watch()
    assert standings(driver, queues=("m",)).queue("m").absent_ms == last

    driver.run(beat)
    assert standings(driver, queues=("m",)).queue("m").absent_ms is None

    driver.run(operations.retire("m", "w"))
    stopped = driver.now_ms
    driver.advance(5000)
    driver.run(operations.retire("m", "w"))
    driver.watch()
    assert standings(driver, queues=("m",)).queue("m").absent_ms == stopped

    driver.run(beat)
    driver.advance(20_000)
    died = driver.now_ms - 11_000
    assert standings(driver, queues=("m",)).queue("m").absent_ms == died, "not since the absence before"


def test_one_of_several_workers_that_goes_leaves_the_queue_served(driver: Driver) -> None:
    for name in ("v", "w"):
        driver.run(operations.beat("m", worker_entry(name, 100.0), ttl_ms=9000))
    driver.run(operations.retire("m", "w"))
    assert driver.client.hget("eq:q:m:state", "absent") is None


def test_the_work_of_reading_does_not_depend_on_what_waits(driver: Driver) -> None:
    ids = [driver.submit((1, 10), owner="a").task_id for _ in range(20)]
    counted = []
    for owners in (1, 3000):
        for number in range(owners):
            driver.submit((1, 10), task_id=f"{owners}-{number}", owner=f"o{number}")
        standings(driver, *ids)  # Redis knows the script now
        counted.append(commands(driver.client, lambda: standings(driver, *ids)))
    few, many = (sum(count.values()) for count in counted)
    driver.client.flushall()  # to forget so many tasks one by one takes long
    assert few <= 2 * len(ids) + 12
    assert many == few


def test_deaths_of_workers_are_told_while_a_text_is_tried_again(driver: Driver) -> None:
    task_id = driver.submit((3, 30)).task_id
    assert standing(driver, task_id).died_ms == 0
    for deaths in (1, 2):
        claim = driver.claim() if deaths == 1 else driver.claim(suspect=True)
        assert claim.units
        driver.advance(LEASE_MS)
        driver.watch()
        assert standing(driver, task_id).died_ms == driver.now_ms
    died_ms, claim = driver.now_ms, driver.claim(suspect=True)
    driver.advance(1000)
    driver.run(operations.release("m", claim.token))
    assert standing(driver, task_id).died_ms == died_ms, "what is given back is nobody's death"


def test_a_full_redis_tells_all_the_same(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = driver.submit((1, 10)).task_id
    redis_client.config_set("maxmemory", 1)
    try:
        assert standing(driver, task_id).cost_before == 0
    finally:
        redis_client.config_set("maxmemory", 0)

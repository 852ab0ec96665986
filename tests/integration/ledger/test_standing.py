"""Where open tasks stand: what takes a turn before them, how much work that is, and since when nobody serves them."""

import pytest
import redis

from tasks.ledger import ClaimedUnit, Lane, State, operations
from tasks.ledger.standing import Standings, TaskStanding, read_standings
from tests.integration.ledger.driver import Driver, commands
from tests.ledger_builders import worker_entry


def standings(driver: Driver, *task_ids: str, queues: tuple[str, ...] = ()) -> Standings:
    return driver.run(read_standings(queues, task_ids))


def standing(driver: Driver, task_id: str) -> TaskStanding:
    return standings(driver, task_id).tasks[task_id]


def place_in_service(driver: Driver, task_id: str) -> int:
    """How many units of other tasks a worker gets before the first one of this task."""
    units: list[ClaimedUnit] = []
    while not any(unit.task_id == task_id for unit in units):
        claim = driver.claim(max_units=1)
        units += claim.units
        driver.commit(claim)
    return len(units) - 1


def test_the_position_is_the_one_of_the_real_order_of_service(driver: Driver) -> None:
    for number in range(5):
        driver.submit((1, 10), (1, 10), task_id=f"a-{number}", owner="a", lane=Lane.BULK)
    for number in range(2):
        driver.submit((1, 10), (1, 10), task_id=f"b-{number}", owner="b", lane=Lane.BULK)
    ids = ["a-0", "a-3", "a-4", "b-0", "b-1"]
    before = {task_id: task.before for task_id, task in standings(driver, *ids).tasks.items()}
    assert before == {"a-0": 0, "b-0": 1, "b-1": 3, "a-3": 5, "a-4": 6}
    assert place_in_service(driver, "a-4") in (before["a-4"], 8)  # two tasks of b have two turns by then


@pytest.mark.parametrize("served", [0, 3, 8])
def test_of_tasks_of_one_turn_every_position_is_exact(driver: Driver, served: int) -> None:
    ids = [
        driver.submit((1, 10), task_id=f"{owner}-{number}", owner=owner).task_id
        for owner, tasks in (("a", 4), ("b", 3), ("c", 1), ("d", 6))
        for number in range(tasks)
    ]
    for _ in range(served):
        driver.commit(driver.claim(max_units=1))
    told = {task_id: task.before for task_id, task in standings(driver, *ids).tasks.items()}
    order = []
    while units := (claim := driver.claim(max_units=1)).units:
        order += [unit.task_id for unit in units]
        driver.commit(claim)
    assert told == {task_id: place for place, task_id in enumerate(order)}


def test_a_task_whose_units_are_all_handed_out_has_no_place(driver: Driver) -> None:
    task_id = driver.submit((1, 10), (1, 10)).task_id
    driver.claim()
    seen = standing(driver, task_id)
    assert (seen.state, seen.before, seen.items, seen.cost) == (State.IN_PROGRESS, None, 2, 20)


def test_the_work_before_a_task_is_what_fair_turns_let_go_first(driver: Driver) -> None:
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    driver.submit((100, 10_000), owner="a", lane=Lane.BULK)
    small = driver.submit((10, 500), owner="a", lane=Lane.BULK).task_id
    other = driver.submit((10, 500), owner="b", lane=Lane.BULK).task_id
    assert (standing(driver, small).cost_before, standing(driver, small).seconds_before) == (1000, 10.0)
    assert (standing(driver, other).cost_before, standing(driver, other).seconds_left) == (500, 10.0)
    assert standing(driver, small).items_per_s == 2.0
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
    assert many <= few + 64


def test_of_very_many_owners_it_is_said_that_there_are_more(driver: Driver) -> None:
    for number in range(70):
        driver.submit((1, 10), owner=f"o{number:02d}")
    seen = standing(driver, driver.submit((1, 10), owner="z").task_id)
    assert (seen.before, seen.more) == (64, True)


def test_of_very_many_owners_a_place_that_can_be_known_is_told(driver: Driver) -> None:
    first, second, *_ = (driver.submit((1, 10), owner=f"o{number:02d}").task_id for number in range(70))
    later = driver.submit((1, 10), owner="o00").task_id
    seen = standings(driver, first, second, later).tasks
    assert [(seen[task_id].before, seen[task_id].more) for task_id in (first, second, later)] == [
        (0, False), (1, False), (64, True),
    ]  # fmt: skip


def test_a_full_redis_tells_all_the_same(driver: Driver, redis_client: redis.Redis) -> None:
    task_id = driver.submit((1, 10)).task_id
    redis_client.config_set("maxmemory", 1)
    try:
        assert standing(driver, task_id).before == 0
    finally:
        redis_client.config_set("maxmemory", 0)

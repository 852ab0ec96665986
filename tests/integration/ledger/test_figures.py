"""What metrics read of the ledger: how long tasks took, how they ended, and how long the next ones have waited."""

import itertools
from collections.abc import Iterator

import pytest
import redis
from redis.client import Monitor

from tasks.ledger import Lane, ModelOverview, keys, operations
from tasks.ledger.overview import TOOK_BOUNDS_S
from tests.integration.ledger.driver import Driver, commands, failed, finished

ONLINE, BULK = Lane.ONLINE, Lane.BULK


def overview(driver: Driver) -> ModelOverview:
    return driver.run(operations.overview("m"))["m"]


def counted(seen: ModelOverview) -> dict[tuple[str, float | None], int]:
    """Tasks that completed by lane and the bound below which they stayed; None: above all of them."""
    bounds = (*TOOK_BOUNDS_S, None)
    return {
        (lane.value, bound): tasks
        for lane, took in seen.took.items()
        for bound, tasks in zip(bounds, took.counts, strict=True)
        if tasks
    }


def monitored(monitor: Monitor) -> Iterator[str]:
    """The commands that Redis runs, those inside of scripts included."""
    for seen in monitor.listen():  # type: ignore[no-untyped-call]
        yield seen["command"]


@pytest.mark.parametrize(
    ("ms", "bound_s"), [(0, 0.004), (4, 0.004), (5, 0.008), (1024, 1.024), (1025, 2.048), (2**27, 134217.728)]
)
def test_a_task_is_counted_by_the_time_from_its_acceptance_to_its_end(driver: Driver, ms: int, bound_s: float) -> None:
    driver.submit((1, 10), (1, 10))
    driver.commit(driver.claim(max_units=1))
    driver.advance(ms)
    assert overview(driver).took == {}, "it has not ended"
    driver.work_off()
    assert counted(overview(driver)) == {("online", bound_s): 1}
    assert overview(driver).took[ONLINE].sum_s == ms / 1000


def test_what_takes_longer_than_all_bounds_is_counted_above_them(driver: Driver) -> None:
    driver.submit(lane=BULK)
    driver.advance(2**29)
    driver.work_off()
    assert counted(overview(driver)) == {("bulk", None): 1}


def test_every_way_to_end_is_counted_once(driver: Driver) -> None:
    bad, cancelled, gone = (driver.submit(lane=BULK).task_id for _ in range(3))
    driver.submit((3, 30), lane=BULK, deadline_in_ms=1000)
    driver.cancel(cancelled)
    driver.cancel(cancelled)
    driver.forget(gone)
    claim = driver.claim(max_units=1)
    assert [unit.task_id for unit in claim.units] == [bad]
    for _ in range(2):
        driver.commit(claim, [failed(claim.units[0])])
    driver.advance(1000)
    for _ in range(2):
        driver.watch()
    seen = overview(driver)
    ends = {"ended_bulk_failed": 1, "ended_bulk_cancelled": 2, "ended_bulk_expired": 1}
    assert counted(seen) == {}
    assert seen.ended == ends | {"items_bulk_failed": 1}, "nothing was done for texts that nobody waits for"


def test_texts_are_counted_by_lane_when_they_are_done(driver: Driver) -> None:
    for lane in Lane:
        driver.submit((3, 30), (2, 20), lane=lane)
        claim = driver.claim(max_units=1)
        driver.commit(claim, [finished(claim.units[0])])
        rest = driver.claim(max_units=1)
        driver.commit(rest, [failed(rest.units[0])])
    done = {"items_online_completed": 3, "items_online_failed": 2, "items_bulk_completed": 3, "items_bulk_failed": 2}
    assert overview(driver).ended == done
    assert counted(overview(driver)) == {("online", 0.004): 1, ("bulk", 0.004): 1}, "completed, with failed texts"


def test_the_texts_that_another_model_left_are_counted_as_failed(driver: Driver) -> None:
    driver.submit((1, 10), (3, 30))
    driver.commit(driver.claim(max_units=1, stamp="one"))
    driver.client.hset(keys.queue_key("m", "state"), "serves", "two")
    assert driver.claim(stamp="two").units == ()
    assert overview(driver).ended == {"items_online_completed": 1, "items_online_failed": 3}
    assert counted(overview(driver)) == {("online", 0.004): 1}


def test_a_script_writes_each_figure_once_however_many_tasks_end(driver: Driver, redis_client: redis.Redis) -> None:
    for _ in range(11):
        driver.submit()
    driver.advance(5)
    claim = driver.claim()
    with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]
        driver.commit(claim)
        driver.client.echo("end")
        seen = itertools.takewhile(lambda command: not command.startswith("ECHO"), monitored(monitor))
        written = [command.split()[2:] for command in seen if command.startswith("HSET eq:q:m:state")]
    assert len(written) == 1
    figures = dict(zip(written[0][::2], written[0][1::2], strict=True))
    of_ends = {name: n for name, n in figures.items() if name.startswith(("items_", "took_"))}
    assert of_ends == {"items_online_completed": "11", "took_online_3": "11", "took_online_ms": "55"}


def test_the_oldest_of_what_is_next_in_line(driver: Driver) -> None:
    assert overview(driver).oldest_waiting_s == {}
    driver.submit(owner="ann")
    driver.advance(1500)
    driver.submit(owner="bob", lane=BULK)
    driver.advance(500)
    driver.submit(owner="bob", lane=ONLINE)
    assert overview(driver).oldest_waiting_s == {ONLINE: 2.0, BULK: 0.5}
    driver.commit(driver.claim(max_units=1))
    assert overview(driver).oldest_waiting_s == {ONLINE: 0.0, BULK: 0.5}
    driver.claim()
    driver.claim()
    assert overview(driver).oldest_waiting_s == {}, "what a worker has claimed does not wait"


def test_a_task_that_has_begun_is_as_old_as_it_is(driver: Driver) -> None:
    driver.submit((1, 10), (1, 10), lane=BULK)
    driver.commit(driver.claim(max_units=1))
    driver.advance(9000)
    driver.submit(lane=BULK)
    assert overview(driver).oldest_waiting_s == {BULK: 9.0}


def test_looking_for_the_oldest_does_not_grow_with_the_backlog(driver: Driver, redis_client: redis.Redis) -> None:
    def cost() -> int:
        return sum(commands(redis_client, lambda: overview(driver)).values())

    overview(driver)  # Redis knows the script now
    empty = cost()
    for number in range(120):
        driver.submit(owner=f"o{number % 12}", lane=BULK)
    driver.advance(1000)
    assert overview(driver).oldest_waiting_s == {BULK: 1.0}
    assert cost() - empty == 8 + 8 * 4

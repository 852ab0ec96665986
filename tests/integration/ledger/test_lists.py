"""An owner's list of tasks: order, pages, states, what is not in it, and that it goes away with its tasks."""

from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.testing import wait_until
from tasks.ledger import Alias, State, Task, TaskPage
from tasks.ledger.operations import LOOK
from tests.integration.ledger.driver import TTL_MS, Driver, commands

TASKS = "eq:tasks:anonymous"
OPEN = "eq:open:anonymous"


def ids(listed: TaskPage) -> list[str]:
    return [task.id for task in listed.tasks]


def submit(driver: Driver, count: int, **changed: Any) -> list[str]:
    """Ids of new listed tasks, newest first."""
    return [driver.submit(listed=True, **changed).task_id for _ in range(count)][::-1]


def pages(driver: Driver, limit: int, **changed: Any) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        part = driver.listed(limit=limit, after=after, **changed)
        found += ids(part)
        if not part.more:
            return found
        assert part.until != after, "the list does not move on"
        after = part.until


def test_only_listed_tasks_of_the_owner_newest_first(driver: Driver) -> None:
    first, _, other = submit(driver, 1), driver.submit(), submit(driver, 1, owner="b")
    second = submit(driver, 1)
    assert ids(driver.listed()) == [*second, *first]
    assert ids(driver.listed("b")) == other
    assert driver.listed("nobody") == TaskPage((), "", more=False)


def test_a_listed_task_is_the_one_that_is_read(driver: Driver) -> None:
    driver.submit((2, 10), listed=True, metadata=b'{"a":"b"}', deadline_in_ms=1000)
    [listed] = driver.listed().tasks
    assert listed == driver.task(listed.id)
    assert listed.metadata == {"a": "b"}


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
def test_pages_hold_each_task_once(driver: Driver, limit: int) -> None:
    expected = submit(driver, 5)
    part = driver.listed(limit=limit)
    assert ids(part) == expected[:limit]
    assert part.more == (limit < 5)
    assert pages(driver, limit) == expected


def test_a_new_task_does_not_move_the_pages_behind(driver: Driver) -> None:
    expected = submit(driver, 4)
    first = driver.listed(limit=2)
    submit(driver, 3)
    assert ids(driver.listed(limit=2, after=first.until)) == expected[2:]


def test_a_place_stays_good_when_its_task_is_forgotten(driver: Driver) -> None:
    expected = submit(driver, 4)
    driver.forget(expected[1])
    assert ids(driver.listed(after=expected[1])) == expected[2:]


def test_states(driver: Driver) -> None:
    cancelled, completed = submit(driver, 1), submit(driver, 1)
    driver.cancel(cancelled[0])
    driver.work_off()
    running = submit(driver, 1)
    driver.claim()
    queued = submit(driver, 1)
    for states, expected in [
        ((), [*queued, *running, *completed, *cancelled]),
        ((State.QUEUED,), queued),
        ((State.COMPLETED, State.CANCELLED), [*completed, *cancelled]),
        ((State.EXPIRED,), []),
    ]:
        assert ids(driver.listed(states=states)) == expected
        assert pages(driver, 1, states=states) == expected


def test_a_search_looks_at_so_many_and_says_where_to_go_on(driver: Driver, redis_client: redis.Redis) -> None:
    [oldest] = submit(driver, 1)
    driver.cancel(oldest)
    newer = submit(driver, LOOK)
    part = driver.listed(states=(State.CANCELLED,))
    assert part == TaskPage((), until=newer[-1], more=True)
    assert ids(driver.listed(states=(State.CANCELLED,), after=part.until)) == [oldest]


def test_a_page_costs_the_same_in_a_long_list(driver: Driver, redis_client: redis.Redis) -> None:
    counts = []
    for count in (30, 1000):
        submit(driver, count)
        driver.listed()
        counts.append(commands(redis_client, driver.listed))
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) <= 5 + 4 * 21


def test_what_is_gone_leaves_the_list_when_it_is_met(driver: Driver, redis_client: redis.Redis) -> None:
    [kept] = submit(driver, 1)
    redis_client.zadd(TASKS, {f"task_0000{n}": 0 for n in range(9)} | {"task_9": 0})
    assert ids(driver.listed()) == [kept]
    assert redis_client.zrange(TASKS, 0, -1) == [kept.encode()]


def test_what_is_gone_does_not_pile_up_where_nobody_lists(driver: Driver, redis_client: redis.Redis) -> None:
    submit(driver, 1)
    held = driver.claim()  # its owner always has an open task, so the list itself never expires
    for _ in range(150):
        [short] = submit(driver, 1, ttl_ms=1)
        driver.work_off()
        wait_until(lambda: not redis_client.exists(f"eq:task:{short}"))  # noqa: B023
    assert redis_client.zcard(TASKS) < 20
    driver.commit(held)


def test_a_list_lives_as_long_as_its_tasks(driver: Driver, redis_client: redis.Redis) -> None:
    two = submit(driver, 2)
    assert redis_client.pttl(TASKS) == -1
    driver.cancel(two[0])
    assert redis_client.pttl(TASKS) == -1
    driver.work_off()
    assert 0 < redis_client.pttl(TASKS) <= TTL_MS
    assert not redis_client.exists(OPEN)
    submit(driver, 1)
    assert redis_client.pttl(TASKS) == -1
    driver.work_off()
    assert 0 < redis_client.pttl(TASKS) <= TTL_MS


@pytest.mark.parametrize("end", ["commit", "cancel", "expire", "forget"])
def test_every_end_counts_once(driver: Driver, redis_client: redis.Redis, end: str) -> None:
    [task_id] = submit(driver, 1, deadline_in_ms=1000)
    submit(driver, 1)
    for _ in range(2):
        if end == "commit":
            claim = driver.claim(max_units=1)
            driver.commit(claim)
            driver.commit(claim)
        elif end == "expire":
            driver.advance(1000)
            driver.watch()
        else:
            getattr(driver, end)(task_id)
        if end == "commit":
            break
    assert redis_client.get(OPEN) == b"1"
    assert redis_client.zcard(TASKS) == (1 if end == "forget" else 2)


def test_a_repeated_submission_is_listed_once(driver: Driver, redis_client: redis.Redis) -> None:
    alias = Alias("a" * 32, "d" * 32, join=False)
    first = driver.submit(listed=True, alias=alias, task_id="task_1").task_id
    driver.submit(listed=True, alias=alias, task_id="task_1")
    driver.submit(listed=True, alias=alias, task_id="task_2")
    assert ids(driver.listed()) == [first]
    assert redis_client.get(OPEN) == b"1"


def test_a_full_redis_lists(driver: Driver, redis_client: redis.Redis) -> None:
    expected = submit(driver, 2)
    driver.listed()
    redis_client.zadd(TASKS, {"task_0": 0})
    try:
        redis_client.config_set("maxmemory", 1)
        assert ids(driver.listed()) == expected
        driver.work_off()
        assert not redis_client.exists(OPEN)
    finally:
        redis_client.config_set("maxmemory", 0)


STEPS = st.lists(
    st.tuples(st.sampled_from(["submit", "submit", "cancel", "forget", "work"]), st.integers(0, 30)), max_size=30
)


@settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(1, 5), st.sets(st.sampled_from(State)))
def test_whatever_happens_pages_hold_what_is_there(
    redis_client: redis.Redis, steps: list[tuple[str, int]], limit: int, states: set[State]
) -> None:
    redis_client.flushall()
    driver = Driver(redis_client)
    known: dict[str, None] = {}
    for what, number in steps:
        if what == "submit":
            known[driver.submit(listed=True).task_id] = None
        elif what == "work":
            driver.commit(driver.claim(max_units=1 + number % 3))
        elif known:
            task_id = list(known)[number % len(known)]
            getattr(driver, what)(task_id)
            if what == "forget":
                del known[task_id]
    tasks: list[Task] = [driver.task(task_id) for task_id in reversed(known)]
    assert pages(driver, limit, states=tuple(states)) == [
        task.id for task in tasks if not states or task.state in states
    ]

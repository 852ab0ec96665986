"""An owner's list of tasks: order, pages, states, and what is not in it."""

from typing import Any

import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.ledger.task import State, Task
from tests.integration.ledger.driver import Driver, commands


def ids(listed: tuple[list[Task], str, bool]) -> list[str]:
    return [task.id for task in listed[0]]


def submit(driver: Driver, count: int, **changed: Any) -> list[str]:
    """Ids of new listed tasks, newest first."""
    return [driver.submit(listed=True, **changed).task_id for _ in range(count)][::-1]


def pages(driver: Driver, limit: int, **changed: Any) -> list[str]:
    found: list[str] = []
    after = ""
    while True:
        part = driver.listed(limit=limit, after=after, **changed)
        found += ids(part)
        _, until, more = part
        if not more:
            return found
        assert until != after, "the list does not move on"
        after = until


def test_a_page_costs_the_same_in_a_long_list(driver: Driver, redis_client: redis.Redis) -> None:
    counts = []
    for count in (30, 1000):
        submit(driver, count)
        driver.listed()
        counts.append(commands(redis_client, driver.listed))
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) <= 5 + 21
    redis_client.flushall()  # to forget so many tasks one by one takes long


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
            driver.commit(driver.claim(max_pieces=1 + number % 3))
        elif known:
            task_id = list(known)[number % len(known)]
            getattr(driver, what)(task_id)
            if what == "forget":
                del known[task_id]
    tasks: list[Task] = [driver.task(task_id) for task_id in reversed(known)]
    assert pages(driver, limit, states=tuple(states)) == [
        task.id for task in tasks if not states or task.state in states
    ]

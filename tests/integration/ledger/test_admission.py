"""Admission: checked inside SUBMIT, so that it cannot overshoot and a refusal leaves nothing behind."""

import asyncio
import contextlib
import dataclasses
import itertools
import random
from typing import Any

import pytest
import redis

from tasks.errors import BacklogFull, EmbedqError, StorageFull
from tasks.ledger import Admission, AsyncLedger, Lane, SubmitReply, operations
from tests.integration.ledger.driver import Driver, new_units
from tests.integration.ledger.snapshot import Snapshot
from tests.ledger_builders import worker_entry

TEN_TASKS = Admission(max_backlog_s=1.0, default_rate=100.0)
"""Room for ten tasks that cost 10 each."""
FIVE_SECONDS = Admission(max_backlog_s=5.0, default_rate=100.0)


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told times are the earliest ones."""
    monkeypatch.setattr(random, "randint", lambda earliest, _: earliest)


def fill(driver: Driver, owner: str, lane: Lane) -> int:
    """How many tasks of 10 tokens an owner gets in."""
    for number in itertools.count():  # pragma: no branch
        try:
            driver.submit(owner=owner, lane=lane, admission=TEN_TASKS)
        except BacklogFull:
            return number
    raise AssertionError


async def test_concurrent_submits_do_not_overshoot(driver: Driver, redis_url: str) -> None:
    ledger = AsyncLedger.connect(redis_url)
    # Redis knows the script: or each of the fifty would open a connection to send it.
    await ledger.run(operations.submit(driver.submission(lane=Lane.BULK)))

    async def submit(task_id: str) -> SubmitReply | EmbedqError:
        call = operations.submit(driver.submission(task_id=task_id, admission=TEN_TASKS))
        try:
            return await ledger.run(call)
        except BacklogFull as error:
            return error

    try:
        replies = await asyncio.gather(*(submit(f"task_{i}") for i in range(50)))
    finally:
        await ledger.close()
    assert sum(isinstance(reply, SubmitReply) for reply in replies) == 10
    assert driver.run(operations.overview("m"))["m"].backlog_cost[Lane.ONLINE] == 100


def test_a_refused_task_leaves_nothing_and_says_when_there_is_room(driver: Driver, redis_client: redis.Redis) -> None:
    for _ in range(20):
        driver.submit(admission=FIVE_SECONDS)
    before = Snapshot.take(redis_client)
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, 500), metadata=b'{"a":"b"}', deadline_in_ms=5, admission=FIVE_SECONDS)
    assert refused.value.retry_after_s == 2  # 700 tokens at 100/s, 5 s of which may wait
    assert Snapshot.take(redis_client).values == before.values


@pytest.mark.parametrize(("queued", "seconds"), [(60, 1), (10**7, 96)])
def test_retry_after_stays_within_what_clients_accept(driver: Driver, queued: int, seconds: int) -> None:
    driver.submit((1, queued))
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, 90), admission=TEN_TASKS)
    assert refused.value.retry_after_s == seconds


def test_an_empty_queue_takes_any_one_task(driver: Driver) -> None:
    tiny = Admission(max_backlog_s=0.001, default_rate=1.0, max_backlog_bytes=1)
    assert not driver.submit((64, 10**6), admission=tiny).joined
    with pytest.raises(BacklogFull):
        driver.submit(admission=tiny)


def test_lanes_are_admitted_apart(driver: Driver) -> None:
    for _ in range(10):
        driver.submit(admission=TEN_TASKS)
    driver.submit(lane=Lane.BULK, admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit(admission=TEN_TASKS)


def test_work_that_is_done_makes_room(driver: Driver) -> None:
    for _ in range(10):
        driver.submit(admission=TEN_TASKS)
    claim = driver.claim(max_units=1)
    with pytest.raises(BacklogFull):  # what is being worked on still counts
        driver.submit(admission=TEN_TASKS)
    driver.commit(claim)
    driver.submit(admission=TEN_TASKS)


def test_bytes_are_limited_over_both_lanes(driver: Driver) -> None:
    units = [dataclasses.replace(new_units((1, 1))[0], payload=b'["' + b"x" * 96 + b'"]')]
    limit = Admission(max_backlog_s=1e9, max_backlog_bytes=250)
    driver.submit(units=units, lane=Lane.BULK, admission=limit)
    first = driver.submit(units=units, admission=limit)
    with pytest.raises(BacklogFull):
        driver.submit(units=units, admission=limit)
    driver.cancel(first.task_id)
    driver.submit(units=units, admission=limit)


def test_the_measured_rate_counts_and_the_last_one_is_kept(driver: Driver) -> None:
    for name, rate in (("a", 100.0), ("b", 300.0)):
        driver.run(operations.beat("m", worker_entry(name, rate), ttl_ms=10_000))
    admission = Admission(max_backlog_s=1.0, default_rate=1.0)
    driver.submit((1, 200), admission=admission)
    driver.submit((1, 200), admission=admission)
    with pytest.raises(BacklogFull):
        driver.submit((1, 200), admission=admission)
    driver.advance(60_000)
    driver.watch()  # both are gone
    driver.work_off()
    driver.submit((1, 200), admission=admission)
    driver.submit((1, 200), admission=admission)


@pytest.mark.parametrize("lane", Lane)
def test_an_owner_who_fills_a_lane_shuts_nobody_out(driver: Driver, lane: Lane) -> None:
    """Each is let in up to its share: the limit by the number of owners with open work."""
    assert fill(driver, "greedy", lane) == 10
    assert fill(driver, "modest", lane) == 5
    assert fill(driver, "third", lane) == 3
    with pytest.raises(BacklogFull):
        driver.submit(owner="greedy", lane=lane, admission=TEN_TASKS)
    assert fill(driver, "greedy", Lane.BULK if lane is Lane.ONLINE else Lane.ONLINE) == 10


def test_an_owner_with_nothing_queued_may_bring_any_one_task(driver: Driver) -> None:
    fill(driver, "greedy", Lane.ONLINE)
    driver.submit((1, 10**6), owner="modest", admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit((1, 10**6), owner="modest", admission=TEN_TASKS)


def test_a_small_task_is_judged_by_the_work_before_it(driver: Driver) -> None:
    """One large request of the same owner is ahead of it by as much as it costs itself."""
    driver.submit((1, 10**6), task_id="large", admission=TEN_TASKS)
    for number in range(9):
        driver.submit((1, 10), task_id=f"small-{number}", admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit((1, 100), admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit((1, 10), admission=TEN_TASKS)


def test_tasks_that_come_ever_smaller_do_not_add_up(driver: Driver) -> None:
    admission = Admission(max_backlog_s=10.0, default_rate=100.0)

    def backlog_s() -> float:
        return driver.run(operations.overview("m"))["m"].backlog_cost[Lane.ONLINE] / 100

    for cost in range(999, 100, -10):
        with contextlib.suppress(BacklogFull):
            driver.submit((1, cost), admission=admission)
    assert 15 <= backlog_s() <= 20 + 5  # the last one may be the one that fills it
    driver.submit((1, 100), admission=admission)
    for _ in range(2):  # others come up to their share all the same: of 10 s a half
        driver.submit((1, 200), owner="modest", admission=admission)
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, 101), owner="modest", admission=admission)
    assert refused.value.retry_after_s == 1
    driver.submit((1, 99), owner="modest", admission=admission)


def test_what_nobody_waits_for_any_more_does_not_count(driver: Driver) -> None:
    """A caller who has gone leaves a task that ends soon. One that is listed has somebody who asks for it."""
    for number in range(2):
        driver.submit((1, 50), task_id=f"sync-{number}", deadline_in_ms=65_000, admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit((1, 50), admission=TEN_TASKS)
    driver.submit((1, 100), lane=Lane.BULK, deadline_in_ms=5_000)
    with pytest.raises(BacklogFull):
        driver.submit((1, 50), admission=TEN_TASKS)
    for number in range(2):
        driver.run(operations.want("m", f"sync-{number}", 10_000, shorten=True))
    for number in range(2):
        driver.submit((1, 50), task_id=f"listed-{number}", deadline_in_ms=5_000, listed=True, admission=TEN_TASKS)
    with pytest.raises(BacklogFull):
        driver.submit((1, 50), admission=TEN_TASKS)


def test_many_that_nobody_waits_for_do_not_count_either(driver: Driver) -> None:
    for _ in range(200):
        driver.submit((1, 10), deadline_in_ms=10_000)
    assert fill(driver, "anonymous", Lane.ONLINE) == 10


def test_what_somebody_waits_for_counts_beside_many_that_nobody_waits_for(driver: Driver) -> None:
    """A refusal looks at a part of the abandoned ones, which says nothing of the size of the rest."""
    for number in range(600):
        driver.submit(
            (1, 100 if number < 64 else 1), task_id=f"gone-{number}", deadline_in_ms=2_000 if number < 64 else 9_000
        )
    for number in range(10):
        driver.submit((1, 10), task_id=f"wanted-{number}", deadline_in_ms=65_000)
    with pytest.raises(BacklogFull):
        driver.submit(admission=TEN_TASKS)


SCENES: dict[str, list[tuple[str, int, int]]] = {
    "equal tasks": [("a", 10, 50)],
    "one large task": [("a", 1, 900), ("a", 4, 100)],
    "small among large": [("a", 30, 100)],
    "another owner": [("a", 10, 40), ("b", 30, 100)],
    "two others": [("a", 3, 200), ("b", 30, 100), ("c", 2, 300)],
}
"""Tasks that are queued before somebody is refused: owner, how many, cost of each."""


@pytest.mark.parametrize(("scene", "cost"), [(s, c) for s in SCENES for c in (60, 200, 500)])
def test_who_is_refused_is_let_in_about_when_it_was_told(driver: Driver, scene: str, cost: int) -> None:
    """The time told is within a factor of two of the time after which the same request is taken, at 100 tokens/s."""
    driver.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10**6))
    admission = Admission(max_backlog_s=3.0)
    for owner, tasks, each in SCENES[scene]:
        for _ in range(tasks):
            driver.submit(*[(1, 10)] * (each // 10), owner=owner)
    with pytest.raises(BacklogFull) as first:
        driver.submit((1, cost), owner="a", admission=admission)
    told = [first.value.retry_after_s or 0]
    while told[-1]:
        driver.commit(driver.claim(budget=100))
        driver.advance(1000)
        try:
            driver.submit((1, cost), owner="a", admission=admission)
        except BacklogFull as refused:
            told.append(refused.retry_after_s or 0)
        else:
            break
    waited = len(told)
    assert waited / 2 <= told[0] <= 2 * waited, told
    assert all(later <= earlier for earlier, later in itertools.pairwise(told)), told


def test_a_told_time_is_no_later_than_the_end_of_abandoned_work(driver: Driver) -> None:
    """The largest is a second from being given up, and all of it is gone ten seconds after that."""
    driver.submit((1, 5000), deadline_in_ms=11_000, admission=TEN_TASKS)
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, 500), admission=TEN_TASKS)
    assert refused.value.retry_after_s == 1


def test_memory_above_the_share_refuses_new_tasks(driver: Driver, redis_client: redis.Redis) -> None:
    driver.watch()
    share = driver.run(operations.overview("m"))["m"].memory_percent
    admission = Admission(max_backlog_s=1e9, max_memory_percent=share + 1)
    driver.submit(admission=admission)
    redis_client.set("eq:memory", f"{share + 1} 100", px=60_000)
    with pytest.raises(StorageFull):
        driver.submit(admission=admission)


def test_room_is_reserved_for_the_vectors_of_accepted_items(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", "0 100000", px=60_000)
    admission = Admission(max_backlog_s=1e9, vector_bytes=4000)
    held = [driver.submit((10, 10), admission=admission).task_id for _ in range(2)]
    with pytest.raises(StorageFull):
        driver.submit((10, 10), admission=admission)
    driver.cancel(held[0])  # what has ended needs no more room than it has
    driver.submit((5, 5), admission=admission)
    driver.work_off()
    assert redis_client.get("eq:reserved") == b"0"


def hold(driver: Driver, owner: str, **changed: Any) -> int:
    """How many tasks of a few large vectors an owner gets into the memory."""
    admission = Admission(max_backlog_s=1e9, vector_bytes=1000, owner_share=4)
    for number in itertools.count():  # pragma: no branch
        try:
            driver.submit((9, 9), owner=owner, admission=admission, **changed)
        except StorageFull:
            return number
    raise AssertionError


def test_an_owner_who_fills_the_memory_shuts_nobody_out(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", "0 1000000", px=60_000)
    greedy, modest, third = (hold(driver, owner) for owner in ("greedy", "modest", "third"))
    assert 70 <= greedy <= 80  # of 100 or so
    assert 10 <= modest <= 18
    assert 1 <= third <= 4


def test_an_owner_that_fills_its_share_waits_for_its_own_results(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", "0 1000000", px=60_000)
    admission = Admission(max_backlog_s=1e9, vector_bytes=1000, owner_share=4)
    for owner, items, seconds in (("other", 90, 20), ("greedy", 700, 90)):
        driver.submit((items, items), owner=owner, ttl_ms=seconds * 1000, admission=admission)
    driver.work_off()
    redis_client.set("eq:memory", "800000 1000000", px=60_000)
    with pytest.raises(StorageFull, match="Your share") as refused:
        driver.submit((90, 90), owner="greedy", admission=admission)
    assert refused.value.retry_after_s == pytest.approx(90, abs=3)
    driver.submit((90, 90), owner="modest", admission=admission)


def test_results_fill_their_owners_share_until_they_expire(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", "0 1000000", px=60_000)
    had = hold(driver, "greedy", ttl_ms=40_000)
    driver.work_off()
    redis_client.set("eq:memory", "780000 1000000", px=60_000)  # what these vectors take now
    assert hold(driver, "greedy", ttl_ms=40_000) <= 2
    assert hold(driver, "modest", ttl_ms=40_000) > 0
    driver.advance(42_000)
    driver.watch()
    redis_client.set("eq:memory", "0 1000000", px=60_000)
    assert had - 20 <= hold(driver, "greedy") <= had


def test_a_forgotten_result_leaves_the_account(driver: Driver, redis_client: redis.Redis) -> None:
    admission = Admission(max_backlog_s=1e9, vector_bytes=1000)
    ended = [driver.submit((1, 10), owner="a", admission=admission).task_id for _ in range(3)]
    driver.work_off()
    cancelled = driver.submit((1, 10), owner="a", admission=admission).task_id
    assert redis_client.hget("eq:held", "a") == b"8102"  # three results, and one that is open with its text
    driver.cancel(cancelled)
    assert redis_client.hget("eq:held", "a") == b"6072"
    for task_id in [*ended, cancelled]:
        driver.forget(task_id)
    assert not redis_client.exists("eq:held", "eq:held-until")


def test_a_result_that_has_been_counted_out_is_not_counted_out_again(driver: Driver, redis_client: redis.Redis) -> None:
    admission = Admission(max_backlog_s=1e9, vector_bytes=1000)
    early = driver.submit(owner="a", ttl_ms=60_000, admission=admission).task_id
    driver.work_off()
    driver.advance(62_000)
    driver.watch()
    driver.submit(owner="a", admission=admission)
    before = redis_client.hgetall("eq:held")
    driver.forget(early)  # its record is still there: it lives by the server's own clock
    assert redis_client.hgetall("eq:held") == before


def test_a_full_memory_says_when_results_expire(driver: Driver, redis_client: redis.Redis) -> None:
    admission = Admission(max_backlog_s=1e9, vector_bytes=1000)
    for seconds in (20, 70, 900):
        driver.submit((1, 10), ttl_ms=seconds * 1000, admission=admission)
    driver.work_off()
    redis_client.set("eq:memory", "99000 100000", px=60_000)

    def told(items: int) -> int | None:
        with pytest.raises(StorageFull) as refused:
            driver.submit((items, items), admission=admission)
        return refused.value.retry_after_s

    assert told(1) == pytest.approx(20, abs=1)  # a 32nd of its life later at most
    assert told(2) == pytest.approx(70, abs=3)
    assert told(10) == 96
    redis_client.delete("eq:memory")
    driver.submit(units=[dataclasses.replace(new_units((1, 400))[0], payload=b"[" + b" " * 5000 + b'"x"]')])
    redis_client.set("eq:memory", "99000 100000", px=60_000)
    assert told(3) == 1  # 400 tokens at 4,000/s free the text that waits


def test_one_owner_cannot_fill_the_room_for_queued_texts(driver: Driver) -> None:
    units = [dataclasses.replace(new_units((1, 1))[0], payload=b'["' + b"x" * 96 + b'"]')]
    limit = Admission(max_backlog_s=1e9, max_backlog_bytes=1000, owner_share=4)
    for _ in range(8):
        driver.submit(units=units, owner="greedy", admission=limit)
    with pytest.raises(BacklogFull):
        driver.submit(units=units, owner="greedy", admission=limit)
    driver.submit(units=units, owner="modest", admission=limit)


def test_submits_between_two_looks_at_the_memory_add_up(driver: Driver, redis_client: redis.Redis) -> None:
    redis_client.set("eq:memory", "0 1000", px=60_000)
    units = [dataclasses.replace(new_units((1, 1))[0], payload=b'["' + b"x" * 396 + b'"]')]
    for _ in range(2):
        driver.submit(units=units)
    with pytest.raises(StorageFull):
        driver.submit(units=units)


def test_the_same_submit_again_is_one_task(driver: Driver) -> None:
    submission = driver.submission((2, 20), (1, 5), metadata=b'{"a":"b"}')
    first = driver.run(operations.submit(submission))
    again = driver.run(operations.submit(submission))
    assert (again.task_id, again.joined) == (first.task_id, False)
    overview = driver.run(operations.overview("m"))["m"]
    assert (overview.backlog_tasks[Lane.ONLINE], overview.backlog_cost[Lane.ONLINE]) == (1, 25)
    assert len(driver.work_off()) == 2


def test_metadata_is_kept_beside_the_task(driver: Driver) -> None:
    task_id = driver.submit(metadata=b'{"key":"value"}').task_id
    assert driver.task(task_id).metadata == {"key": "value"}
    assert driver.task(driver.submit().task_id).metadata is None


def test_a_task_without_units_is_refused(driver: Driver) -> None:
    with pytest.raises(ValueError, match="no units"):
        driver.submit(units=[])

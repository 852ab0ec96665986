"""Admission: checked inside SUBMIT, so that it cannot overshoot and a refusal leaves nothing behind."""

import asyncio
import dataclasses

import pytest
import redis

from tasks.errors import BacklogFull, EmbedqError, StorageFull
from tasks.ledger import Admission, AsyncLedger, Lane, SubmitReply, WorkerEntry, operations
from tests.integration.ledger.driver import Driver, new_units
from tests.integration.ledger.snapshot import Snapshot

TEN_TASKS = Admission(max_backlog_s=1.0, default_rate=100.0)
"""Room for ten tasks that cost 10 each."""


def worker(worker_id: str, rate: float) -> WorkerEntry:
    return WorkerEntry(
        id=worker_id,
        pid=1,
        host="h",
        started_at=0,
        rate=rate,
        rss_bytes=0,
        forward_passes=0,
        items=0,
        tokens=0,
        padded_tokens=0,
    )


async def test_concurrent_submits_do_not_overshoot(driver: Driver, redis_url: str) -> None:
    ledger = AsyncLedger.connect(redis_url)

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
    for _ in range(10):
        driver.submit(admission=TEN_TASKS)
    before = Snapshot.take(redis_client)
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, 500), metadata=b'{"a":"b"}', deadline_in_ms=5, admission=TEN_TASKS)
    assert refused.value.retry_after_s == 5  # 600 tokens at 100/s, 1 s of which may wait
    assert Snapshot.take(redis_client).values == before.values


@pytest.mark.parametrize(("cost", "seconds"), [(1, 1), (10**7, 120)])
def test_retry_after_stays_within_what_clients_accept(driver: Driver, cost: int, seconds: int) -> None:
    driver.submit((1, 100))
    with pytest.raises(BacklogFull) as refused:
        driver.submit((1, cost), admission=TEN_TASKS)
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
        driver.run(operations.beat("m", worker(name, rate), ttl_ms=10_000))
    admission = Admission(max_backlog_s=1.0, default_rate=1.0)
    driver.submit((1, 390), admission=admission)
    driver.submit((1, 10), admission=admission)
    with pytest.raises(BacklogFull):
        driver.submit((1, 10), admission=admission)
    driver.advance(60_000)
    driver.watch()  # both are gone
    driver.work_off()
    driver.submit((1, 390), admission=admission)
    driver.submit((1, 10), admission=admission)


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

"""A full Redis refuses new tasks whole and lets everything go on that finishes or frees work."""

from collections.abc import Iterator

import pytest
import redis

from tasks.errors import StorageFull
from tasks.ledger import Admission, Alias, CommitOutcome, State, operations
from tests.integration.ledger.driver import LEASE_MS, Driver, failed, finished, unchanging
from tests.integration.ledger.snapshot import Snapshot
from tests.ledger_builders import model_entry, worker_entry


@pytest.fixture
def full(driver: Driver, redis_client: redis.Redis) -> Iterator[Driver]:
    """A queue of 40 tasks, two of them claimed by `w`, and a result, in a Redis that may not grow any more."""
    driver.submit(owner="other", ttl_ms=50_000, admission=Admission(max_backlog_s=1e9, vector_bytes=5000))
    driver.work_off()
    alias = Alias("a" * 32, "d" * 32, join=True)
    driver.submit(task_id="joinable", alias=alias, deadline_in_ms=60_000, owner="other")
    for number in range(40):
        driver.submit((1, 10), task_id=f"task_{number}", deadline_in_ms=120_000)
    driver.claim("w", token="w/held", max_units=2)
    limit = redis_client.config_get("maxmemory")["maxmemory"]
    assert limit is not None
    redis_client.config_set("maxmemory", 1_000_000)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        redis_client.set("eq:x", "y")
    try:
        yield driver
    finally:
        redis_client.config_set("maxmemory", limit)


def test_a_new_task_is_refused_with_nothing_changed(full: Driver, redis_client: redis.Redis) -> None:
    before = Snapshot.take(redis_client).values
    with pytest.raises(StorageFull) as refused:
        full.submit((1, 10), (1, 5), metadata=b"{}", deadline_in_ms=5, alias=Alias("b" * 32, "d" * 32, join=False))
    assert Snapshot.take(redis_client).values == before
    assert 48 <= (refused.value.retry_after_s or 0) <= 65  # then the result has expired


def test_the_same_submit_again_is_not_refused(full: Driver) -> None:
    assert full.submit(task_id="task_30").task_id == "task_30"


def test_joining_is_not_refused(full: Driver) -> None:
    alias = Alias("a" * 32, "d" * 32, join=True)
    full.advance(1000)
    joined = full.submit(alias=alias, deadline_in_ms=60_000, owner="other")
    assert (joined.task_id, joined.joined) == ("joinable", True)
    assert full.task("joinable").deadline_ms == full.now_ms + 60_000


def test_running_work_commits_and_more_is_claimed(full: Driver) -> None:
    held = full.claim("w", token="w/held")
    assert len(held.units) == 2
    assert full.commit(held, [finished(held.units[0]), failed(held.units[1])]) == [CommitOutcome.COMMITTED] * 2
    assert len(full.work_off("w")) == 39
    assert full.task("task_30").state is State.COMPLETED


@pytest.mark.parametrize("rang", [True, False])
def test_claims_work_whatever_comes_first(full: Driver, rang: bool) -> None:
    assert full.claim("new", rang=rang, linger_ms=500).units


def test_a_worker_may_linger(full: Driver) -> None:
    full.work_off()
    full.release(full.claim("w", token="w/held"))
    full.work_off()
    assert full.claim("idle", linger_ms=500).wait_ms == 500


def test_work_is_given_back(full: Driver) -> None:
    held = full.claim("w", token="w/held")
    full.release(held)
    assert len(full.work_off()) == 41


def test_a_dead_worker_is_cleaned_up_after(full: Driver) -> None:
    full.run(operations.abandon("m", "w"))
    assert full.watch().leases == 0
    full.claim("w2", max_units=1)
    full.advance(LEASE_MS)
    assert full.watch().leases == 0


def test_leases_are_renewed(full: Driver) -> None:
    full.advance(LEASE_MS - 1)
    assert full.run(operations.renew("m", "w/held", LEASE_MS))
    full.advance(LEASE_MS - 1)
    assert full.watch().leases == 1


def test_tasks_are_cancelled_forgotten_and_expire(full: Driver) -> None:
    assert full.cancel("task_30") == "cancelled"
    assert full.forget("task_31")
    assert full.run(operations.want("m", "task_32", 10, shorten=True))
    full.advance(10)
    assert full.watch().expired == 1
    assert full.task("task_32").state is State.EXPIRED


def test_tasks_are_read(full: Driver) -> None:
    assert unchanging(full.task("task_30")).state is State.QUEUED
    assert full.result("task_30").vectors.shape == (1, 0)


def test_workers_come_beat_and_go(full: Driver) -> None:
    full.run(operations.check_schema())
    full.run(operations.register("m", model_entry()))
    full.run(operations.beat("m", worker_entry("w", 100.0), ttl_ms=10_000))
    assert [w.id for w in full.run(operations.overview())["m"].workers] == ["w"]
    full.run(operations.leave("m", "w", warm=True))
    full.run(operations.retire("m", "w"))
    assert full.run(operations.overview())["m"].workers == ()


def test_room_that_was_made_is_used_again(full: Driver, redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory", 64 * 2**20)
    assert not full.submit().joined

"""Batches and ingestions that their owner deletes: at once out of sight, and gone when the sweep has been there."""

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tasks.records.jobs import Counts, DonePage, JobRecord, JobStatus, Page, Stage, list_jobs
from tasks.records.moves import Move, cancel_job, delete_job, retry_job
from tasks.records.store import left_of
from tests.integration.ledger.driver import Driver
from tests.integration.ledger.listener import Listener
from tests.integration.ledger.snapshot import Snapshot
from tests.integration.records.jobs import (
    KINDS,
    NAME,
    Sweeper,
    change,
    create,
    end,
    job,
    make,
    open_jobs,
    seen,
)
from tests.ledger_builders import new_task

New = Callable[..., JobRecord]
pytestmark = pytest.mark.parametrize("new", KINDS, ids=["batch", "ingestion"])


def begins(move: Move) -> None:
    """A page that is done, and one that waits."""
    move.set(status=JobStatus.IN_PROGRESS, next_page=3)
    move.pages.update({1: Page(documents=3), 2: Page(documents=3)})
    move.close(2, DonePage("x", Counts(documents=3, loaded=2, failed=1)))


def ended(driver: Driver, new: New, alias: str = NAME) -> str:
    """One of ann's that has ended, with all that it may have left; its id."""
    made = create(driver, new("ann", alias=alias))
    change(driver, made, begins)
    return end(driver, made, JobStatus.FAILED)


def test_an_open_one_that_is_deleted_ends_first(driver: Driver, new: New) -> None:
    made = create(driver, new("ann"))
    change(driver, made, begins)
    assert make(driver, delete_job(job(driver, made)))
    found = job(driver, made)
    assert (found.deleted, found.record.status, found.record.stop) == (True, JobStatus.IN_PROGRESS, JobStatus.DELETED)
    assert open_jobs(driver, type(found.record)) == {made}, "the driver ends it"
    assert delete_job(found) is None
    assert cancel_job(found) is None


def test_one_that_is_cancelled_may_be_deleted_before_its_end(driver: Driver, new: New) -> None:
    made = create(driver, new("ann"))
    assert make(driver, cancel_job(job(driver, made)))
    assert make(driver, delete_job(job(driver, made)))
    assert job(driver, made).record.stop is JobStatus.DELETED


def test_what_was_deleted_is_out_of_the_list_and_the_sweep_removes_it(
    driver: Driver, redis_client: redis.Redis, tmp_path: Path, new: New
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made, other = ended(driver, new), ended(driver, new, alias="")
    kind = type(job(driver, made).record)
    for name in (f"ann/{made}/1.list", f"ann/{other}/1.list"):
        sweeper.storage.write(name, b"x")
    with Listener(redis_client, "eq:jobs") as woken:
        assert make(driver, delete_job(job(driver, made)))
        assert woken.messages() == [b"job"]
    assert job(driver, made).deleted
    assert not job(driver, other).deleted
    assert driver.run(list_jobs(kind, "ann", after=None, limit=10)) == ([other], False)
    assert open_jobs(driver, kind) == set()
    assert delete_job(job(driver, made)) is None, "it is deleted already"
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert sweeper.names(f"ann/{made}") == []
    assert not [name for name in Snapshot.take(redis_client).values if made in name]
    assert seen(driver, other) is not None


def test_the_key_of_what_was_deleted_is_free_again(driver: Driver, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = ended(driver, new)
    make(driver, delete_job(job(driver, made)))
    repeated = create(driver, new("ann", alias=NAME))
    assert repeated != made
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert create(driver, new("ann", alias=NAME)) == repeated, "the key is the other one's now"


def test_nobody_goes_on_with_what_was_deleted(driver: Driver, new: New) -> None:
    made = ended(driver, new)
    make(driver, delete_job(job(driver, made)))
    assert retry_job(job(driver, made)) is None
    assert cancel_job(job(driver, made)) is None
    assert job(driver, made).status.terminal


def test_whoever_retries_and_deletes_at_once_does_one_of_both(driver: Driver, new: New) -> None:
    made = ended(driver, new)
    read = job(driver, made)
    assert make(driver, delete_job(read))
    assert not make(driver, retry_job(read))
    assert job(driver, made).deleted


def test_a_full_redis_deletes(driver: Driver, redis_client: redis.Redis, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = ended(driver, new)
    redis_client.config_set("maxmemory", 1_000_000)
    try:
        assert make(driver, delete_job(job(driver, made)))
        sweeper.to_the_end()
    finally:
        redis_client.config_set("maxmemory", 0)
    assert seen(driver, made) is None


def test_one_that_is_deleted_while_it_runs_leaves_nothing(
    driver: Driver, redis_client: redis.Redis, tmp_path: Path, new: New
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = create(driver, new("ann"))
    change(driver, made, begins)

    def parses(move: Move) -> None:
        move.put(1, under_way=True)
        move.new_tasks.append(new_task(task_id=move.record.task_id(1, Stage.PARSE), owner="ann"))

    def drops(move: Move) -> None:
        move.put(1, under_way=False)
        move.forget.append(move.record.task_id(1, Stage.PARSE))
        move.end(JobStatus.DELETED)

    change(driver, made, parses)
    make(driver, delete_job(job(driver, made)))
    change(driver, made, drops)
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert not driver.run(left_of("ann"))
    assert not [name for name in redis_client.keys("eq:*") if made.encode() in name or b":ann" in name]

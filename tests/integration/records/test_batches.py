"""The record of a batch: created once, read as it is, listed by owner, gone in time."""

from pathlib import Path

import pytest

from tasks.errors import StorageFull
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.batches import BatchCounts, BatchRecord, BatchStatus
from tasks.records.jobs import JobError, JobStatus, Page, Stage, list_jobs
from tasks.records.moves import Move
from tasks.records.stage_tasks import embed_task
from tasks.records.store import Room, left_of
from tests.integration.ledger.driver import MODEL, Driver, new_pieces
from tests.integration.records.jobs import (
    DAY_MS,
    HOUR_MS,
    NAME,
    Sweeper,
    batch,
    change,
    create,
    end,
    new_batch,
    new_ingestion,
    open_jobs,
    passes,
    seen,
)
from tests.raises_code import raises_code

YEAR_MS = 365 * DAY_MS


def begins(move: Move) -> None:
    """Its lines are checked, and ten texts of five requests wait for the model."""
    move.set(status=JobStatus.IN_PROGRESS, model=MODEL, next_page=2)
    move.pages[1] = Page(at=Stage.EMBED, under_way=True, documents=5, chunks=10)
    move.new_tasks.append(embed_task(move.record, 1, new_pieces((10, 10)), None))


def test_a_new_batch(driver: Driver) -> None:
    record = new_batch(request={"metadata": {"a": "b"}, "output_expires_s": 3600})
    assert create(driver, record) == record.id
    made = batch(driver, record.id)
    assert (made.status, made.counts, made.model, made.tokens) == (
        BatchStatus.VALIDATING,
        BatchCounts(0, 0, 0),
        "",
        None,
    )
    assert (made.metadata, made.output_expires_s, made.input_file_id) == ({"a": "b"}, 3600, "file-1")
    assert (made.created_ms, made.until_ms, made.expires_ms) == (driver.now_ms, driver.now_ms + DAY_MS, None)
    assert open_jobs(driver, BatchRecord) == {record.id}


def test_creating_again_changes_nothing(driver: Driver) -> None:
    record = new_batch()
    create(driver, record)
    change(driver, record.id, begins)
    assert create(driver, record) == record.id
    assert batch(driver, record.id).status is BatchStatus.IN_PROGRESS


def test_a_key_finds_its_batch_and_refuses_another_request(driver: Driver) -> None:
    first = create(driver, new_batch(alias=NAME))
    assert create(driver, new_batch(alias=NAME)) == first
    with raises_code("idempotency_key_reused"):
        create(driver, new_batch(alias=NAME), digest="e" * 32)
    assert create(driver, new_batch("somebody", alias=NAME), digest="e" * 32) != first


def test_a_state_has_the_time_at_which_it_was_reached(driver: Driver) -> None:
    made = create(driver, new_batch())
    driver.advance(5)
    change(driver, made, begins)
    reached = {BatchStatus.IN_PROGRESS: driver.now_ms}
    assert batch(driver, made).times == reached
    driver.advance(5)
    change(driver, made, lambda move: move.put(1, losses=1))
    assert batch(driver, made).times == reached, "it was there before"
    end(driver, made)
    assert batch(driver, made).times == reached | {BatchStatus.COMPLETED: driver.now_ms}


def test_requests_are_counted_while_the_model_works(driver: Driver) -> None:
    made = create(driver, new_batch())
    change(driver, made, begins)
    assert batch(driver, made).counts == BatchCounts(5, 0, 0)
    driver.work_off()
    assert batch(driver, made).counts == BatchCounts(5, 5, 0)


def test_why_a_batch_failed_is_read(driver: Driver) -> None:
    made = create(driver, new_batch())
    errors = (JobError("invalid_json_line", "x", None, 2), JobError("empty_file", "y"))
    change(driver, made, lambda move: move.stop(JobStatus.FAILED, *errors))
    assert batch(driver, made).errors == errors


def test_a_batch_expires_after_its_end_and_its_key_with_it(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = end(driver, create(driver, new_batch(alias=NAME)), JobStatus.FAILED)
    assert open_jobs(driver, BatchRecord) == set()
    assert batch(driver, made).expires_ms == driver.now_ms + HOUR_MS
    sweeper.passes(HOUR_MS / 1000 - 1)
    sweeper()
    assert create(driver, new_batch(alias=NAME)) == made
    sweeper.passes(1)
    sweeper()
    assert batch(driver, made).deleted
    assert create(driver, new_batch(alias=NAME)) != made
    sweeper.to_the_end()
    assert seen(driver, made) is None


def test_a_list_is_by_owner_and_paged(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    ids = [create(driver, new_batch()) for _ in range(7)]
    foreign = create(driver, new_batch("somebody"))

    def listed(owner: str, after: str | None, limit: int) -> tuple[list[str], bool]:
        return driver.run(list_jobs(BatchRecord, owner, after=after, limit=limit))

    assert listed("anonymous", None, 3) == (ids[:3:-1], True)
    assert listed("anonymous", ids[4], 4) == (ids[3::-1], False)
    assert listed("anonymous", ids[0], 4) == ([], False)
    assert listed("somebody", None, 3) == ([foreign], False)
    assert open_jobs(driver, BatchRecord) == {foreign, *ids}
    end(driver, ids[2])
    assert listed("anonymous", ids[3], 4) == ([ids[2], ids[1], ids[0]], False), "it has ended, and is there"
    sweeper.passes(HOUR_MS / 1000)
    sweeper()
    assert listed("anonymous", ids[3], 4) == ([ids[1], ids[0]], False), "it has expired"


def test_a_full_redis_refuses_new_batches_and_moves_old_ones(driver: Driver) -> None:
    made = create(driver, new_batch())
    driver.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StorageFull):
            create(driver, new_batch())
        assert change(driver, made, begins)
        assert batch(driver, made).tasks
        assert open_jobs(driver, BatchRecord) == {made}
    finally:
        driver.client.config_set("maxmemory", 256 * 2**20)


def test_an_owner_has_so_many_open_batches_at_a_time(driver: Driver) -> None:
    two = Room({"batches": 2})
    first = create(driver, new_batch(alias=NAME), two)
    create(driver, new_batch(), two)
    with raises_code("too_many_batches", match=r"2 batches .* 2 are allowed") as refused:
        create(driver, new_batch(), two)
    assert refused.value.retry_after_s == 60
    assert len(open_jobs(driver, BatchRecord)) == 2
    assert create(driver, new_batch(alias=NAME), two) == first, "a repetition is no new one"
    create(driver, new_batch("somebody"), two)
    end(driver, first, JobStatus.CANCELLED)
    create(driver, new_batch(), two)
    with raises_code("too_many_batches"):
        create(driver, new_batch(), two)


def test_open_jobs_of_a_key_are_tasks_batches_and_ingestions(driver: Driver) -> None:
    three = Room({"jobs": 3})
    made = create(driver, new_batch(alias=NAME), three)
    create(driver, new_ingestion(), three)
    task = driver.submit(listed=True).task_id
    for record in (new_batch(), new_ingestion()):
        with raises_code("key_limit", match="open_jobs is 3, and 3 have not ended") as refused:
            create(driver, record, three)
        assert refused.value.retry_after_s is not None
    assert create(driver, new_batch(alias=NAME), three) == made, "a repetition is no new one"
    driver.cancel(task)
    create(driver, new_ingestion(), three)
    end(driver, made, JobStatus.CANCELLED)
    create(driver, new_batch(), three)


def test_an_open_batch_is_kept_however_short_it_is_kept_afterwards(driver: Driver) -> None:
    made = create(driver, new_batch(window_ms=1, ttl_ms=1, alias=NAME))
    passes(driver, YEAR_MS)
    assert create(driver, new_batch(alias=NAME)) == made


@pytest.mark.parametrize("faults", [0, 50])
def test_all_that_an_ended_batch_takes_is_in_the_account_of_its_owner(
    driver: Driver, tmp_path: Path, faults: int
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = create(driver, new_batch(alias=NAME, request={"metadata": {"a": "b"}}))
    change(driver, made, begins)
    fault = JobError("invalid_value", "The field must be another one. " * 5, "body.input", 7)

    def ends(move: Move) -> None:
        move.forget.append(move.record.task_id(1, Stage.EMBED))
        move.pages.clear()
        move.stop(JobStatus.FAILED, *[fault] * faults)
        move.end(JobStatus.FAILED)

    change(driver, made, ends)
    assert driver.run(left_of("anonymous")).memory_bytes >= driver.taken(made)
    sweeper.passes(HOUR_MS / 1000)
    sweeper.to_the_end()
    assert not driver.run(left_of("anonymous"))


def test_metrics_count_the_ends_of_batches(driver: Driver) -> None:
    one, two, three, _ = (create(driver, new_batch()) for _ in range(4))
    change(driver, one, begins)
    for batch_id in (one, two):
        end(driver, batch_id, JobStatus.FAILED)
    end(driver, three, JobStatus.CANCELLED)
    documents = driver.run(overview(DOCUMENTS))[DOCUMENTS]
    assert documents.counters == {"batches_failed": 2, "batches_cancelled": 1}
    assert documents.redis.open_batches == 1

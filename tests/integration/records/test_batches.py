"""The record of a batch: created once, moved only as named, listed by owner, gone in time."""

import dataclasses
from typing import Any

import pytest

from tasks.errors import StorageFull
from tasks.ledger.heartbeat import watch
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import State
from tasks.records.batches import (
    Batch,
    BatchFault,
    BatchStatus,
    NewBatch,
    Stage,
    close_batch,
    create_batch,
    faults_text,
    list_batches,
    move_batch,
    new_batch_id,
    open_batches,
    read_batch,
)
from tasks.records.ingestion_operations import create_ingestion
from tasks.records.ingestions import NewIngestion, new_ingestion_id
from tasks.records.store import Room, left_of
from tests.integration.ledger.driver import Driver
from tests.raises_code import raises_code

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
"""So long, and a day, an open batch waits for its workers behind its window."""
KEY = ("a" * 32, "d" * 32)


def new(owner: str = "anonymous", **changed: Any) -> NewBatch:
    batch = NewBatch(new_batch_id(), owner, "file-1", "24h", window_ms=24 * HOUR_MS, ttl_ms=HOUR_MS)
    return dataclasses.replace(batch, **changed)


def ingestion() -> NewIngestion:
    return NewIngestion(new_ingestion_id(), "anonymous", {"model": "m"}, HOUR_MS)


def read(driver: Driver, batch_id: str) -> Batch:
    batch = driver.run(read_batch(batch_id))
    assert batch is not None
    return batch


def move(driver: Driver, batch_id: str, to: BatchStatus, *only_from: BatchStatus, **fields: str | int) -> bool:
    return driver.run(move_batch(batch_id, to, only_from=only_from or [BatchStatus.VALIDATING], fields=fields))[0]


def test_a_new_batch(driver: Driver) -> None:
    new_batch = new(metadata={"a": "b"}, output_expires_s=3600)
    assert driver.run(create_batch(new_batch)) == new_batch.id
    batch = read(driver, new_batch.id)
    assert (batch.status, batch.total, batch.model, batch.tokens) == (BatchStatus.VALIDATING, 0, None, None)
    assert (batch.metadata, batch.output_expires_s, batch.input_file_id) == ({"a": "b"}, 3600, "file-1")
    assert (batch.created_ms, batch.expires_ms) == (driver.now_ms, driver.now_ms + 24 * HOUR_MS)
    assert driver.run(open_batches(10)) == [new_batch.id]


def test_creating_again_changes_nothing(driver: Driver) -> None:
    new_batch = new()
    driver.run(create_batch(new_batch))
    move(driver, new_batch.id, BatchStatus.IN_PROGRESS)
    assert driver.run(create_batch(new_batch)) == new_batch.id
    assert read(driver, new_batch.id).status is BatchStatus.IN_PROGRESS


def test_a_key_finds_its_batch_and_refuses_another_request(driver: Driver) -> None:
    first = new(key=KEY)
    driver.run(create_batch(first))
    assert driver.run(create_batch(new(key=KEY))) == first.id
    with raises_code("idempotency_key_reused"):
        driver.run(create_batch(new(key=(KEY[0], "e" * 32))))
    assert driver.run(create_batch(new("somebody", key=(KEY[0], "e" * 32)))) != first.id


def test_a_move_names_where_it_may_start(driver: Driver) -> None:
    new_batch = new()
    driver.run(create_batch(new_batch))
    driver.advance(5)
    assert move(driver, new_batch.id, BatchStatus.IN_PROGRESS, model="m", total=7)
    assert not move(driver, new_batch.id, BatchStatus.FAILED)
    batch = read(driver, new_batch.id)
    assert (batch.status, batch.model, batch.total) == (BatchStatus.IN_PROGRESS, "m", 7)
    reached = {BatchStatus.IN_PROGRESS: driver.now_ms}
    assert batch.times == reached
    driver.advance(5)
    assert move(driver, new_batch.id, BatchStatus.IN_PROGRESS, BatchStatus.IN_PROGRESS, total=8)
    assert read(driver, new_batch.id).times == reached, "it was there before"
    assert driver.run(move_batch("batch_none", BatchStatus.FAILED, only_from=list(BatchStatus))) == (False, None)


def passes(driver: Driver, ms: int) -> None:
    """So much time, and somebody keeps house."""
    driver.advance(ms)
    driver.run(watch(DOCUMENTS))


def test_faults_and_states_of_tasks_are_read(driver: Driver) -> None:
    new_batch = new()
    driver.run(create_batch(new_batch))
    driver.submit((3, 10), task_id=f"{new_batch.id}-embed")
    faults = [BatchFault("invalid_json_line", "x", None, 2), BatchFault("empty_file", "y")]
    move(driver, new_batch.id, BatchStatus.FAILED, errors=faults_text(faults), total=2, texts=3)
    batch = read(driver, new_batch.id)
    assert (list(batch.errors), batch.stages) == (faults, {Stage.EMBED: State.QUEUED})
    driver.work_off()
    assert (read(driver, new_batch.id).completed, read(driver, new_batch.id).failed) == (2, 0)


def test_a_batch_expires_after_its_end_and_its_key_with_it(driver: Driver) -> None:
    new_batch = new(key=KEY)
    driver.run(create_batch(new_batch))
    move(driver, new_batch.id, BatchStatus.FAILED)
    assert driver.run(open_batches(10)) == [new_batch.id], "its traces are still to be removed"
    driver.run(close_batch(new_batch.id))
    assert driver.run(open_batches(10)) == []
    passes(driver, HOUR_MS - 1)
    assert driver.run(create_batch(new(key=KEY))) == new_batch.id
    passes(driver, 1)
    assert driver.run(read_batch(new_batch.id)) is None
    assert driver.run(create_batch(new(key=KEY))) != new_batch.id


def test_a_list_is_by_owner_and_paged(driver: Driver) -> None:
    ids = [driver.run(create_batch(new())) for _ in range(7)]
    foreign = driver.run(create_batch(new("somebody")))
    assert driver.run(list_batches("anonymous", after=None, limit=3)) == (ids[:3:-1], True)
    assert driver.run(list_batches("anonymous", after=ids[4], limit=4)) == (ids[3::-1], False)
    assert driver.run(list_batches("anonymous", after=ids[0], limit=4)) == ([], False)
    assert driver.run(list_batches("somebody", after=None, limit=3)) == ([foreign], False)
    still_open = driver.run(open_batches(100))
    assert set(still_open) == {foreign, *ids}


def test_a_full_redis_refuses_new_batches_and_moves_old_ones(driver: Driver) -> None:
    new_batch = new()
    driver.run(create_batch(new_batch))
    driver.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(StorageFull):
            driver.run(create_batch(new()))
        assert move(driver, new_batch.id, BatchStatus.IN_PROGRESS)
        assert driver.run(open_batches(10)) == [new_batch.id]
    finally:
        driver.client.config_set("maxmemory", 256 * 2**20)


def test_an_owner_has_so_many_open_batches_at_a_time(driver: Driver) -> None:
    two = Room({"batches": 2})
    first = driver.run(create_batch(new(key=KEY), two))
    driver.run(create_batch(new(), two))
    with raises_code("too_many_batches", match=r"2 batches .* 2 are allowed") as refused:
        driver.run(create_batch(new(), two))
    assert refused.value.retry_after_s == 60
    assert len(driver.run(open_batches(10))) == 2
    assert driver.run(create_batch(new(key=KEY), two)) == first, "a repetition is no new one"
    driver.run(create_batch(new("somebody"), two))
    move(driver, first, BatchStatus.CANCELLED)
    driver.run(create_batch(new(), two))
    with raises_code("too_many_batches"):
        driver.run(create_batch(new(), two))


def test_open_jobs_of_a_key_are_tasks_batches_and_ingestions(driver: Driver) -> None:
    three = Room({"jobs": 3})
    batch = driver.run(create_batch(new(key=KEY), three))
    driver.run(create_ingestion(ingestion(), three))
    task = driver.submit(listed=True).task_id
    for create in (create_batch(new(), three), create_ingestion(ingestion(), three)):
        with raises_code("key_limit", match="open_jobs is 3, and 3 have not ended") as refused:
            driver.run(create)
        assert refused.value.retry_after_s is not None
    assert driver.run(create_batch(new(key=KEY), three)) == batch, "a repetition is no new one"
    driver.cancel(task)
    driver.run(create_ingestion(ingestion(), three))
    move(driver, batch, BatchStatus.CANCELLED)
    driver.run(create_batch(new(), three))


def test_an_open_batch_is_kept_however_short_it_is_kept_afterwards(driver: Driver) -> None:
    batch_id = driver.run(create_batch(new(window_ms=1, ttl_ms=1, key=KEY)))
    passes(driver, YEAR_MS)
    assert driver.run(create_batch(new(key=KEY))) == batch_id


def test_open_batches_whose_records_are_gone_do_not_count(driver: Driver) -> None:
    one = Room({"batches": 1})
    driver.run(create_batch(new(), one))
    passes(driver, 48 * HOUR_MS + YEAR_MS - 1)
    with raises_code("too_many_batches"):
        driver.run(create_batch(new(), one))
    passes(driver, 1)
    driver.run(create_batch(new(), one))
    assert len(driver.run(open_batches(10))) == 1


@pytest.mark.parametrize("faults", [0, 50])
def test_all_that_an_ended_batch_takes_is_in_the_account_of_its_owner(driver: Driver, faults: int) -> None:
    batch_id = driver.run(create_batch(new(key=KEY, metadata={"a": "b"})))
    move(driver, batch_id, BatchStatus.IN_PROGRESS, model="m", total=9, texts=9)
    fault = BatchFault("invalid_value", "The field must be another one. " * 5, "body.input", 7)
    ended: dict[str, str | int] = {"errors": faults_text([fault] * faults), "completed": 0, "failed": 9}
    move(driver, batch_id, BatchStatus.FAILED, BatchStatus.IN_PROGRESS, **ended)
    driver.run(close_batch(batch_id))
    assert driver.run(left_of("anonymous")).memory_bytes >= driver.taken(batch_id)
    passes(driver, HOUR_MS)
    assert driver.run(left_of("anonymous")).memory_bytes == 0


def test_metrics_count_the_ends_of_batches(driver: Driver) -> None:
    one, two, three = (driver.run(create_batch(new())) for _ in range(3))
    move(driver, one, BatchStatus.IN_PROGRESS)
    for batch_id in (one, one, two):
        move(driver, batch_id, BatchStatus.FAILED, *BatchStatus)
    move(driver, three, BatchStatus.CANCELLED)
    documents = driver.run(overview(DOCUMENTS))[DOCUMENTS]
    assert documents.counters == {"batches_failed": 2, "batches_cancelled": 1}
    assert documents.redis.open_batches == 3, "their traces are still to be removed"

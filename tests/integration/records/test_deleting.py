"""Batches and ingestions that their owner deletes: not while they are open, at once out of sight, whole at last."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import redis

from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.scripts import Operation
from tasks.records.batches import (
    BatchStatus,
    NewBatch,
    close_batch,
    create_batch,
    delete_batch,
    list_batches,
    move_batch,
    new_batch_id,
    open_batches,
    read_batch,
)
from tasks.records.ingestion_operations import (
    Move,
    close_ingestion,
    create_ingestion,
    delete_ingestion,
    list_ingestions,
    move_ingestion,
    open_ingestions,
    read_ingestion,
    resume_ingestion,
    retry_ingestion,
)
from tasks.records.ingestions import (
    ClosedPage,
    IngestionStatus,
    NewIngestion,
    WaitingPage,
    is_ingestion_id,
    new_ingestion_id,
)
from tests.integration.ledger.driver import Driver
from tests.integration.ledger.listener import Listener
from tests.integration.ledger.snapshot import Snapshot

HOUR_MS = 3_600_000
KEY = ("a" * 32, "d" * 32)


def new_batch(**changed: Any) -> NewBatch:
    batch = NewBatch(new_batch_id(), "ann", "file-1", "24h", window_ms=24 * HOUR_MS, ttl_ms=HOUR_MS, key=KEY)
    return dataclasses.replace(batch, **changed)


def new_ingestion(**changed: Any) -> NewIngestion:
    spec = {"source": {"files": 1}, "model": "m", "mode": "sync"}
    return dataclasses.replace(NewIngestion(new_ingestion_id(), "ann", spec, HOUR_MS, key=KEY), **changed)


def end_batch(batch_id: str) -> Operation[Any]:
    return move_batch(batch_id, BatchStatus.COMPLETED, only_from=[BatchStatus.VALIDATING])


def end_ingestion(ingestion_id: str) -> Operation[Any]:
    """With a page that is done and, as it can go on, one that waits."""
    move = Move(
        only_from=[IngestionStatus.QUEUED],
        to=IngestionStatus.FAILED,
        set={"resumable": 1},
        wait=[WaitingPage(1, "0" * 16, 3, 100)],
        close=[ClosedPage(0, "x", 1, 0, 0)],
    )
    return move_ingestion(ingestion_id, move)


class Kind(NamedTuple):
    """The operations of one kind of record."""

    create: Callable[..., Operation[str]]
    new: Callable[..., Any]
    end: Callable[[str], Operation[Any]]
    read: Callable[[str], Operation[Any]]
    delete: Callable[[str], Operation[tuple[bool, str | None]]]
    close: Callable[..., Operation[None]]
    listed: Callable[..., Operation[tuple[list[str], bool]]]
    opened: Callable[[int], Operation[list[str]]]


BATCH = Kind(
    create_batch, new_batch, end_batch, read_batch, delete_batch, close_batch, list_batches, open_batches
)  # fmt: skip
INGESTION = Kind(
    create_ingestion, new_ingestion, end_ingestion, read_ingestion, delete_ingestion, close_ingestion,
    list_ingestions, open_ingestions,
)  # fmt: skip
pytestmark = pytest.mark.parametrize("kind", [BATCH, INGESTION], ids=["batch", "ingestion"])


def ended(driver: Driver, kind: Kind, **changed: Any) -> str:
    """One that has ended and of which nothing is left to do; its id."""
    record_id = driver.run(kind.create(kind.new(**changed)))
    driver.run(kind.end(record_id))
    driver.run(kind.close(record_id))
    return record_id


def test_one_that_has_not_ended_cannot_be_deleted(driver: Driver, redis_client: redis.Redis, kind: Kind) -> None:
    record_id = driver.run(kind.create(kind.new()))
    before = Snapshot.take(redis_client).values
    assert driver.run(kind.delete(record_id)) == (False, str(driver.run(kind.read(record_id)).status))
    assert Snapshot.take(redis_client).values == before


def test_one_that_does_not_exist_cannot_be_deleted(driver: Driver, redis_client: redis.Redis, kind: Kind) -> None:
    assert driver.run(kind.delete("batch_x")) == (False, None)
    assert Snapshot.take(redis_client).values == {}


def test_what_was_deleted_is_out_of_the_list_and_a_step_removes_it(
    driver: Driver, redis_client: redis.Redis, kind: Kind
) -> None:
    record_id = ended(driver, kind)
    other = ended(driver, kind, key=None)
    assert driver.run(kind.opened(10)) == []
    with Listener(redis_client, "eq:steps") as woken:
        deleted, _ = driver.run(kind.delete(record_id))
        assert woken.messages() == [b"step"]
    assert deleted
    assert driver.run(kind.read(record_id)).deleted
    assert not driver.run(kind.read(other)).deleted
    assert driver.run(kind.listed("ann", after=None, limit=10)) == ([other], False)
    assert driver.run(kind.opened(10)) == [record_id]

    assert driver.run(kind.delete(record_id))[0], "the answer was lost, and the caller asks again"

    driver.run(kind.close(record_id))  # by a step that had read it before
    assert driver.run(kind.read(record_id)).deleted
    assert driver.run(kind.opened(10)) == [record_id]
    redis_client.delete("eq:litter")  # the sweep was there
    driver.run(kind.close(record_id, deleted=True))
    assert driver.run(kind.read(record_id)) is None
    assert driver.run(kind.opened(10)) == []
    assert not [name for name in Snapshot.take(redis_client).values if record_id in name]
    assert driver.run(kind.read(other)) is not None


def test_the_key_of_what_was_deleted_is_free_again(driver: Driver, kind: Kind) -> None:
    record_id = ended(driver, kind)
    driver.run(kind.delete(record_id))
    repeated = kind.new()
    assert driver.run(kind.create(repeated)) == repeated.id
    driver.run(kind.delete(record_id))
    assert driver.run(kind.create(kind.new())) == repeated.id, "the key is the other one's now"


def test_what_was_deleted_goes_by_itself_where_no_step_comes(
    driver: Driver, redis_client: redis.Redis, kind: Kind
) -> None:
    record_id = ended(driver, kind)
    driver.run(kind.delete(record_id))
    driver.advance(HOUR_MS)
    driver.run(watch(DOCUMENTS))
    assert driver.run(kind.read(record_id)) is None
    assert driver.run(kind.opened(10)) == []
    assert not [name for name in redis_client.keys("eq:*") if record_id.encode() in name]


def test_nobody_goes_on_with_what_was_deleted(driver: Driver, kind: Kind) -> None:
    record_id = ended(driver, kind)
    driver.run(kind.delete(record_id))
    if is_ingestion_id(record_id):
        assert not driver.run(resume_ingestion(record_id)).moved
        assert not driver.run(retry_ingestion(record_id)).moved
    else:
        assert not driver.run(end_batch(record_id))[0]
    assert driver.run(kind.read(record_id)).status.terminal


def test_a_full_redis_deletes(driver: Driver, redis_client: redis.Redis, kind: Kind) -> None:
    record_id = ended(driver, kind)
    redis_client.config_set("maxmemory", 1_000_000)
    try:
        assert driver.run(kind.delete(record_id))[0]
        redis_client.delete("eq:litter")
        driver.run(kind.close(record_id, deleted=True))
    finally:
        redis_client.config_set("maxmemory", 0)
    assert driver.run(kind.read(record_id)) is None

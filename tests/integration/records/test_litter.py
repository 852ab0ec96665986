"""What records leave for the sweep, and when it is due; which storage a Redis knows."""

from pathlib import Path

import pytest

from tasks.errors import StorageUnavailable
from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.batches import BatchStatus, NewBatch, create_batch, delete_batch, move_batch, new_batch_id
from tasks.records.files import FileRecord, Purpose, delete_file, file_id_from, put_file, stored_name
from tasks.records.ingestion_operations import (
    Move,
    create_ingestion,
    delete_ingestion,
    move_ingestion,
    resume_ingestion,
)
from tasks.records.ingestions import IngestionStatus, NewIngestion, new_ingestion_id
from tasks.records.litter import Litter, due_litter, litter_done
from tasks.records.storage_identity import StorageProof, accept, id_of, redis_id
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import START_MS, Driver

HOUR_MS = 3_600_000
GRACE_MS = 60_000


def due(driver: Driver) -> list[str]:
    return [litter.entry for litter in driver.run(due_litter(100))]


def ended_batch(driver: Driver) -> str:
    batch = NewBatch(new_batch_id(), "ann", "file-1", "24h", 24 * HOUR_MS, HOUR_MS)
    driver.run(create_batch(batch))
    assert driver.run(move_batch(batch.id, BatchStatus.COMPLETED, only_from=[BatchStatus.VALIDATING]))[0]
    return batch.id


def ended_ingestion(driver: Driver) -> str:
    made = NewIngestion(new_ingestion_id(), "ann", {"model": "m"}, HOUR_MS)
    driver.run(create_ingestion(made))
    end = Move([IngestionStatus.QUEUED], to=IngestionStatus.FAILED, set={"resumable": 1})
    assert driver.run(move_ingestion(made.id, end)).moved
    return made.id


@pytest.mark.parametrize("kind", ["batches", "ingestions"])
def test_an_end_is_due_after_a_minute_and_once_more_with_its_record(driver: Driver, kind: str) -> None:
    job_id = ended_batch(driver) if kind == "batches" else ended_ingestion(driver)
    driver.advance(GRACE_MS - 1)
    assert due(driver) == []
    driver.advance(1)
    assert due(driver) == [f"{kind}/{job_id}/ ann"]
    (litter,) = driver.run(due_litter(100))
    assert (litter.job_id, litter.owner) == (job_id, "ann")
    assert driver.run(litter_done(litter))
    assert due(driver) == []
    driver.advance(HOUR_MS - GRACE_MS)
    driver.run(watch(DOCUMENTS))
    driver.advance(GRACE_MS)
    assert due(driver) == [litter.entry], "its record has gone: a worker that was taken for dead wrote until then"
    assert driver.run(litter_done(litter))
    assert driver.client.zcard("eq:litter") == 0


def test_what_is_tried_again_is_no_litter_until_it_has_ended_again(driver: Driver) -> None:
    made = ended_ingestion(driver)
    driver.advance(GRACE_MS)
    (litter,) = driver.run(due_litter(100))
    driver.run(resume_ingestion(made))
    assert due(driver) == []
    end = Move([IngestionStatus.IN_PROGRESS], to=IngestionStatus.COMPLETED)
    assert driver.run(move_ingestion(made, end)).moved
    assert not driver.run(litter_done(litter)), "the sweep had looked at the end before"
    driver.advance(GRACE_MS)
    assert due(driver) == [litter.entry]


@pytest.mark.parametrize("kind", ["batches", "ingestions"])
def test_what_was_deleted_is_litter(driver: Driver, kind: str) -> None:
    job_id = ended_batch(driver) if kind == "batches" else ended_ingestion(driver)
    driver.advance(GRACE_MS)
    (litter,) = driver.run(due_litter(100))
    driver.run(litter_done(litter))
    driver.run((delete_batch if kind == "batches" else delete_ingestion)(job_id))
    driver.advance(GRACE_MS)
    assert due(driver) == [litter.entry]


def test_a_file_is_due_a_minute_after_its_end(driver: Driver) -> None:
    def put(number: int, expires_in_ms: int | None) -> FileRecord:
        file_id = file_id_from(START_MS, str(number))
        expires_ms = None if expires_in_ms is None else START_MS + expires_in_ms
        record = FileRecord(
            id=file_id,
            owner="ann",
            filename="a",
            purpose=Purpose.BATCH,
            size_bytes=1,
            created_ms=START_MS,
            expires_ms=expires_ms,
            stored=stored_name(file_id),
        )
        driver.run(put_file(record))
        return record

    put(1, None)
    short, early = put(2, 5_000), put(3, 5_000)
    driver.run(delete_file(early.id))
    driver.advance(5_000)
    driver.run(watch(DOCUMENTS))
    assert due(driver) == []
    driver.advance(GRACE_MS - 5_000)
    assert due(driver) == [f"{early.stored} ann"]
    driver.advance(5_000)
    assert due(driver) == [f"{early.stored} ann", f"{short.stored} ann"]
    assert not driver.run(litter_done(Litter(short.stored, "ann"), again_s=10)), "it cannot be deleted now"
    driver.advance(10_000 + GRACE_MS - 1)
    assert due(driver) == [f"{early.stored} ann"]
    driver.advance(1)
    for name in (short.stored, early.stored):
        assert driver.run(litter_done(Litter(name, "ann")))
    assert driver.client.zcard("eq:litter") == 0


# ---- which storage a Redis knows


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


def test_a_redis_knows_the_storage_that_was_used_first(driver: Driver, storage: Storage, tmp_path: Path) -> None:
    proof = StorageProof(storage, driver.run)
    proof.before_missing()
    assert (driver.run(redis_id()), id_of(storage)) == ("", None), "looking writes nothing"
    proof.before_writing()
    known = driver.run(redis_id())
    assert known == id_of(storage) != ""
    assert driver.run(redis_id("a" * 32)) == known

    other = Storage.open(str(tmp_path / "other"))
    for use in (StorageProof(other, driver.run).before_missing, StorageProof(other, driver.run).before_writing):
        with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
            use()
    assert id_of(other) is None, "it may be somebody else's"
    assert accept(other, driver.run) == id_of(other) == driver.run(redis_id())
    with pytest.raises(StorageUnavailable, match="belongs to another Redis"):
        proof.before_missing()


def test_an_empty_redis_takes_the_storage_that_it_finds(driver: Driver, storage: Storage) -> None:
    StorageProof(storage, driver.run).before_writing()
    known = id_of(storage)
    driver.client.flushall()
    again = StorageProof(storage, driver.run)
    again.before_missing()
    again.before_writing()
    assert driver.run(redis_id()) == known

"""The sweep of purged owners: what they have goes, a little in each round, and of others nothing does."""

from pathlib import Path
from typing import Any

import pytest
import redis

from tasks.documents.purging import sweep_late, sweep_owners
from tasks.errors import NotStored
from tasks.ledger.commit import CommitCode
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.submit import submit
from tasks.ledger.task import Lane
from tasks.records import datasets, store
from tasks.records.api_keys import Mark, anonymous_owner, make_mark
from tasks.records.batches import NewBatch, close_batch, create_batch, new_batch_id, open_batches, read_batch
from tasks.records.files import FileRecord, Purpose, file_id_from, put_file, read_file, stored_name
from tasks.records.ingestion_operations import close_ingestion, create_ingestion, open_ingestions, read_ingestion
from tasks.records.ingestions import NewIngestion, new_ingestion_id
from tasks.records.store import ReadRecord, left_of
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import START_MS, Driver
from tests.unit.documents.search.small_datasets import document, load

DAY_MS = 86_400_000


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


def mark(driver: Driver, owner: str) -> None:
    driver.run(make_mark(Mark(name=owner, owner=owner, purged=2.0)))


def swept(driver: Driver, owner: str) -> bool:
    [found] = driver.run(store.read(Mark, [owner]))
    return found is not None and found.record is not None and found.record.swept is not None


def file_of(driver: Driver, storage: Storage, owner: str, number: int = 1) -> FileRecord:
    file_id = file_id_from(START_MS, f"{owner} {number}")
    record = FileRecord(
        id=file_id,
        owner=owner,
        filename="a",
        purpose=Purpose.BATCH,
        size_bytes=1,
        created_ms=START_MS,
        stored=stored_name(file_id),
    )
    storage.write(record.stored, b"x")
    driver.run(put_file(record))
    return record


def batch_of(driver: Driver, owner: str) -> str:
    batch = NewBatch(new_batch_id(), owner, "file-1", "24h", window_ms=DAY_MS, ttl_ms=DAY_MS, key=("k" * 32, "d" * 32))
    return driver.run(create_batch(batch))


def close_all(driver: Driver) -> None:
    """What the steps of batches and ingestions do, after the sweep of their objects."""
    driver.client.delete("eq:litter")
    for batch_id in driver.run(open_batches(100)):
        driver.run(close_batch(batch_id, deleted=True))
    for ingestion_id in driver.run(open_ingestions(100)):
        driver.run(close_ingestion(ingestion_id, deleted=True))


def test_all_that_a_purged_owner_has_goes_and_nothing_of_others(driver: Driver, storage: Storage) -> None:
    kept: list[Any] = []
    for owner in ("ann", "bob", "ann2"):
        task = driver.submit(owner=owner, listed=True).task_id
        batch, file = batch_of(driver, owner), file_of(driver, storage, owner)
        ingestion = driver.run(create_ingestion(NewIngestion(new_ingestion_id(), owner, {"model": "m"}, DAY_MS)))
        load(storage, document("a", [1, 2, 3, 4]), owner=owner, name="d")
        kept.append((task, batch, file, ingestion))
    mark(driver, "bob")
    assert driver.run(left_of("bob")).files == 1

    sweep_owners(storage, driver.ledger)

    assert not swept(driver, "bob"), "its batch and its ingestion wait for their steps"
    task, batch, file, ingestion = kept[1]
    assert driver.run(read_task(task)) is None
    assert driver.run(read_file(file.id)) is None
    with pytest.raises(NotStored):
        storage.read(file.stored)
    assert not list(datasets.datasets_of(storage, "bob"))
    for one in (driver.run(read_batch(batch)), driver.run(read_ingestion(ingestion))):
        assert one is not None
        assert one.deleted
        assert str(one.status) == "cancelled"
    close_all(driver)
    sweep_owners(storage, driver.ledger)
    assert swept(driver, "bob")
    assert not driver.run(left_of("bob"))
    for owner, (task, batch, file, ingestion) in zip(("ann", "ann2"), (kept[0], kept[2]), strict=True):
        assert driver.task(task).owner == owner
        assert not driver.run(read_batch(batch)).deleted  # type: ignore[union-attr]
        assert driver.run(read_file(file.id)) == file
        assert storage.read(file.stored)
        assert not driver.run(read_ingestion(ingestion)).deleted  # type: ignore[union-attr]
        assert list(datasets.datasets_of(storage, owner))


def test_a_worker_that_has_a_job_of_it_commits_nothing(driver: Driver, storage: Storage) -> None:
    batch_id = batch_of(driver, "ann")
    documents = Driver(driver.client, DOCUMENTS)
    job = driver.new_task(task_id=f"{batch_id}-validate", queue=DOCUMENTS, lane=Lane.BULK, owner="ann", listed=True)
    driver.run(submit(job))
    claim = documents.claim()
    mark(driver, "ann")
    sweep_owners(storage, driver.ledger)
    assert documents.commit(claim) == [CommitCode.STALE]


def test_many_files_go_in_several_rounds_and_any_may_be_the_last_of_its_process(
    driver: Driver, storage: Storage
) -> None:
    files = [file_of(driver, storage, "ann", number) for number in range(130)]
    mark(driver, "ann")
    steps = iter(range(7))
    sweep_owners(storage, driver.ledger, lambda: next(steps, None) is not None)
    assert driver.run(left_of("ann")).files == 123
    storage.delete(files[0].stored)  # whoever died had deleted this one, and not its record
    while not swept(driver, "ann"):
        sweep_owners(storage, driver.ledger)
    assert not list(storage.stored("files"))


def test_what_is_being_uploaded_ends(driver: Driver, storage: Storage) -> None:
    file_id = file_id_from(START_MS, "coming")
    coming = FileRecord(
        id=file_id,
        owner="ann",
        filename="",
        purpose=Purpose.USER_DATA,
        size_bytes=1,
        created_ms=START_MS,
        stored=stored_name(file_id),
        state="uploading",
    )
    driver.run(put_file(coming, change="one"))
    mark(driver, "ann")
    sweep_owners(storage, driver.ledger)
    assert swept(driver, "ann")
    done = coming.model_copy(update={"state": "stored"})
    assert not driver.run(store.change(ReadRecord(file_id, coming, "one"), done, for_ms=done.life_ms))


def test_what_a_worker_writes_long_after_the_end_goes_too(driver: Driver, storage: Storage) -> None:
    mark(driver, "bob")
    mark(driver, anonymous_owner(0))
    sweep_owners(storage, driver.ledger)
    assert swept(driver, "bob")
    for owner in ("ann", "bob", anonymous_owner(0)):
        load(storage, document("a", [1, 2, 3, 4]), owner=owner, name="d")
    sweep_late(storage, driver.ledger)
    assert list(datasets.datasets_of(storage, "ann"))
    assert not list(datasets.datasets_of(storage, "bob"))
    assert not list(datasets.datasets_of(storage, anonymous_owner(0)))


def test_a_full_redis_is_purged(driver: Driver, storage: Storage, redis_client: redis.Redis) -> None:
    driver.submit(owner="ann", listed=True)
    file_of(driver, storage, "ann")
    batch_of(driver, "ann")
    redis_client.config_set("maxmemory", 1)
    try:
        mark(driver, "ann")
        sweep_owners(storage, driver.ledger)
        close_all(driver)
        sweep_owners(storage, driver.ledger)
        assert swept(driver, "ann")
    finally:
        redis_client.config_set("maxmemory", 0)

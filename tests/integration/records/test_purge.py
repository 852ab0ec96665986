"""The sweep of purged owners: what they have goes, a little in each round, and of others nothing does."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets.sqlite.datasets import SqliteDatasets
from tasks.errors import NotStored, StorageUnavailable
from tasks.ingestion.driver import Driver as JobDriver
from tasks.ledger.read import read_task
from tasks.ledger.redis_keys import DRIVER
from tasks.records import store
from tasks.records.api_keys import Mark, anonymous_owner, make_mark
from tasks.records.files import FileRecord, Purpose, file_id_from, put_file, read_file, stored_name
from tasks.records.store import left_of
from tasks.storage.storage import Storage
from tasks.storage.sweep_owners import OwnerSweep, Stopped
from tests.integration.datasets.loads import document, load
from tests.integration.ledger.driver import START_MS, Driver
from tests.integration.records.jobs import NAME, Sweeper, create, end, job, new_batch, new_ingestion


def sweep_owners(
    storage: Storage, datasets: SqliteDatasets | None, driver: Driver, go_on: Callable[[], object] = lambda: None
) -> None:
    """One round."""
    with suppress(Stopped):
        OwnerSweep(storage, lambda: datasets, driver.ledger, go_on).sweep(driver.now_ms)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


@pytest.fixture
def datasets(tmp_path: Path) -> SqliteDatasets:
    return SqliteDatasets(tmp_path / "datasets")


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
        stored=stored_name(owner, file_id),
    )
    storage.write(record.stored, b"x")
    driver.run(put_file(record))
    return record


def batch_of(driver: Driver, owner: str) -> str:
    return create(driver, new_batch(owner, alias=NAME))


@pytest.fixture
def sweeper(driver: Driver, tmp_path: Path) -> Sweeper:
    return Sweeper(driver, tmp_path)


def drive(sweeper: Sweeper) -> None:
    """A round of whoever drives jobs."""
    JobDriver(sweeper.driver.ledger, sweeper.storage, sweeper.settings)()
    sweeper.driver.client.delete(DRIVER)


def test_all_that_a_purged_owner_has_goes_and_nothing_of_others(
    driver: Driver, sweeper: Sweeper, datasets: SqliteDatasets
) -> None:
    kept: list[Any] = []
    for owner in ("ann", "bob", "ann2"):
        task = driver.submit(owner=owner, listed=True).task_id
        jobs = [batch_of(driver, owner), create(driver, new_ingestion(owner))]
        jobs.append(end(driver, create(driver, new_ingestion(owner))))
        for job_id in jobs:
            sweeper.storage.write(f"{owner}/{job_id}/1.list", b"x")
        load(datasets.store(owner, "d"), document("a"))
        kept.append((task, jobs, file_of(driver, sweeper.storage, owner)))
    mark(driver, "bob")
    assert driver.run(left_of("bob")).files == 1

    sweeper()

    assert not swept(driver, "bob"), "its batch and its ingestion wait for whoever drives them"
    task, jobs, file = kept[1]
    assert driver.run(read_task(task)) is None
    assert driver.run(read_file(file.id)) is None
    with pytest.raises(NotStored):
        sweeper.storage.read(file.stored)
    assert not datasets.names("bob")
    for job_id in jobs[:2]:
        assert job(driver, job_id).deleted
        assert str(job(driver, job_id).status) == "cancelling"
    drive(sweeper)
    sweeper(rounds=2)
    assert swept(driver, "bob"), "of a purged owner nothing waits"
    assert not driver.run(left_of("bob"))
    assert sweeper.names("bob") == []
    for owner, (task, jobs, file) in zip(("ann", "ann2"), (kept[0], kept[2]), strict=True):
        assert driver.task(task).owner == owner
        assert driver.run(read_file(file.id)) == file
        assert not any(job(driver, job_id).deleted for job_id in jobs)
        assert sweeper.names(owner) == sorted([file.stored, *(f"{owner}/{job_id}/1.list" for job_id in jobs)])
        assert datasets.names(owner) == ["d"]


def test_what_a_worker_writes_long_after_the_end_goes_too(
    driver: Driver, storage: Storage, datasets: SqliteDatasets
) -> None:
    owners = ("ann", "bob", anonymous_owner(0))
    for owner in owners[1:]:
        mark(driver, owner)
    sweep_owners(storage, datasets, driver)
    assert swept(driver, "bob")
    for owner in owners:
        load(datasets.store(owner, "d"), document("a"))
        storage.write(f"{owner}/batch_1/1.rows", b"x")
    OwnerSweep(storage, lambda: datasets, driver.ledger).sweep_late(driver.now_ms)
    assert datasets.owners() == ["ann"]
    assert [stored.name for stored in storage.stored("")] == ["ann/batch_1/1.rows"]


def test_an_owner_whose_objects_cannot_be_deleted_now_keeps_nobody_elses(
    driver: Driver, storage: Storage, datasets: SqliteDatasets, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Storage.delete

    def delete(self: Storage, name: str, *rest: Any) -> None:
        if name.startswith("bob/"):
            raise StorageUnavailable("It denies deleting.")
        real(self, name, *rest)

    owners = ("ann", "bob", "eve")
    for owner in owners:
        file_of(driver, storage, owner)
        mark(driver, owner)
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "delete", delete)
        sweep_owners(storage, datasets, driver)
        assert [swept(driver, owner) for owner in owners] == [True, False, True]
    sweep_owners(storage, datasets, driver)
    assert swept(driver, "bob")
    for owner in owners:
        storage.write(f"{owner}/batch_1/1.rows", b"x")
    monkeypatch.setattr(Storage, "delete", delete)
    OwnerSweep(storage, lambda: datasets, driver.ledger).sweep_late(driver.now_ms)
    assert [stored.name for stored in storage.stored("")] == ["bob/batch_1/1.rows"]

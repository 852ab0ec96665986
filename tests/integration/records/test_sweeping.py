"""What ended jobs, files and purged owners leave for the sweep: it goes when it is due, and of others nothing does."""

from collections.abc import Callable
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
from tasks.records.jobs import Counts, DonePage, JobError, JobRecord, JobStatus, Page, ended_jobs
from tasks.records.moves import Move, delete_job, retry_job
from tasks.records.store import left_of
from tasks.storage.purged_owners import OwnerSweep
from tasks.storage.storage import Storage
from tests.integration.datasets.loads import document, load
from tests.integration.ledger.driver import START_MS, Driver
from tests.integration.records.jobs import (
    DAY_MS,
    KINDS,
    NAME,
    SPEC,
    Sweeper,
    change,
    create,
    end,
    ingestion,
    job,
    make,
    new_batch,
    new_ingestion,
    seen,
)


def purged_owners(storage: Storage, datasets: SqliteDatasets, driver: Driver) -> None:
    """One round."""
    OwnerSweep(storage, lambda: datasets, driver.ledger).sweep(driver.now_ms)


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
    purged_owners(storage, datasets, driver)
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
        purged_owners(storage, datasets, driver)
        assert [swept(driver, owner) for owner in owners] == [True, False, True]
    purged_owners(storage, datasets, driver)
    assert swept(driver, "bob")
    for owner in owners:
        storage.write(f"{owner}/batch_1/1.rows", b"x")
    monkeypatch.setattr(Storage, "delete", delete)
    OwnerSweep(storage, lambda: datasets, driver.ledger).sweep_late(driver.now_ms)
    assert [stored.name for stored in storage.stored("")] == ["bob/batch_1/1.rows"]


New = Callable[..., JobRecord]
of_both_kinds = pytest.mark.parametrize("new", KINDS, ids=["batches", "ingestions"])


def waiting(driver: Driver, job_id: str) -> bool:
    """Whether the sweep has not done with its end."""
    return job_id in [one for one, _ in driver.run(ended_jobs(type(job(driver, job_id).record)))]


def with_parts(sweeper: Sweeper, new: New) -> str:
    """One of ann's with a page that waits, a page that is done, and what their stages have left; its id."""
    made = create(sweeper.driver, new("ann", ttl_ms=DAY_MS))

    def begins(move: Move) -> None:
        move.set(status=JobStatus.IN_PROGRESS, next_page=3, times={"in_progress": 1})
        move.pages.update({n: Page(src=f"ann/{made}/{n}.list", documents=1) for n in (1, 2)})
        move.close(2, DonePage(f"ann/{made}/2.done", Counts(documents=1, failed=1)))

    change(sweeper.driver, made, begins)
    for name in ("1.list", "1.parsed", "2.list", "2.done"):
        sweeper.storage.write(f"ann/{made}/{name}", b"x")
    return made


@of_both_kinds
def test_an_end_is_due_after_a_minute_and_once_more_with_its_record(driver: Driver, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new)
    other = with_parts(sweeper, new)
    everything = sweeper.names(f"ann/{made}")
    for _ in range(3):
        sweeper.passes(100)
        sweeper()
    assert sweeper.names(f"ann/{made}") == everything, "it has not ended"
    end(driver, made, JobStatus.FAILED)
    sweeper()
    sweeper.passes(59)
    sweeper()
    assert sweeper.names(f"ann/{made}") == everything
    assert waiting(driver, made)
    sweeper.passes(1)
    sweeper()
    kept = [] if new is new_batch else [f"ann/{made}/1.list", f"ann/{made}/2.done"]
    assert sweeper.names(f"ann/{made}") == kept
    assert not waiting(driver, made)
    sweeper.storage.write(f"ann/{made}/1.parsed", b"x")  # by a worker that was taken for dead
    sweeper.to_the_end()
    assert f"ann/{made}/1.parsed" in sweeper.names(f"ann/{made}"), "its end is worked off"
    sweeper.passes(DAY_MS / 1000)
    sweeper.to_the_end()
    assert seen(driver, made) is None
    assert sweeper.names(f"ann/{made}") == [], "its record has gone, and all of it"
    assert sweeper.names(f"ann/{other}") == [name.replace(made, other) for name in everything]


def test_what_is_tried_again_is_no_litter_until_it_has_ended_again(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new_ingestion)
    change(driver, made, lambda move: move.set(revision="r"))
    change(driver, made, lambda move: move.stop(JobStatus.FAILED, JobError("worker_lost", "b")))
    end(driver, made, JobStatus.FAILED)
    everything = sweeper.names(f"ann/{made}")
    sweeper()
    sweeper.passes(59)
    assert make(driver, retry_job(ingestion(driver, made)))
    for _ in range(3):
        sweeper()
        sweeper.passes(100)
    assert sweeper.names(f"ann/{made}") == everything
    end(driver, made)
    sweeper()
    sweeper.passes(59)
    sweeper()
    assert sweeper.names(f"ann/{made}") == everything, "of this end it is too early"
    sweeper.passes(1)
    sweeper()
    assert f"ann/{made}/1.parsed" not in sweeper.names(f"ann/{made}")


# ---- what cannot be deleted


def test_what_has_datasets_that_this_worker_cannot_open_waits_for_another_one(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tasks.datasets.places.find_spec", lambda _: None)  # its library is an extra
    sweeper = Sweeper(driver, tmp_path, datasets="postgresql://host/vectors")
    unnamed, named = (
        end(driver, create(driver, new_ingestion("ann", request={**SPEC, "sink": {"type": "dataset", **name}})))
        for name in ({}, {"dataset": "books"})
    )
    batch = end(driver, create(driver, new_batch("ann")))
    for job_id in (unnamed, named):
        make(driver, delete_job(job(driver, job_id)))
    driver.run(make_mark(Mark(name="bob", owner="bob", purged=2.0)))
    sweeper.to_the_end()
    assert (seen(driver, unnamed) is None, seen(driver, named) is None) == (False, True)
    assert not waiting(driver, batch), "others are in nobody's way"
    [mark] = driver.run(store.read(Mark, ["bob"]))
    assert mark is not None
    assert mark.record is not None
    assert mark.record.swept is None
    assert "needs a library" in caplog.text

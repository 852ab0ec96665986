"""What jobs and files leave for the sweep, and when it is due; which storage a Redis knows."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.errors import StorageUnavailable
from tasks.records import store
from tasks.records.api_keys import Mark, make_mark
from tasks.records.jobs import Counts, DonePage, JobError, JobRecord, JobStatus, Page, ended_jobs
from tasks.records.moves import Move, delete_job, retry_job
from tasks.records.storage_identity import StorageProof, accept, ids_of, redis_id
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import Driver
from tests.integration.records.jobs import (
    DAY_MS,
    KINDS,
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


# ---- which storage a Redis knows


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "storage"))


def test_a_redis_knows_the_storage_that_was_used_first(driver: Driver, storage: Storage, tmp_path: Path) -> None:
    proof = StorageProof(storage, driver.run)
    proof.before_missing()
    assert (driver.run(redis_id()), ids_of(storage)) == ("", []), "looking writes nothing"
    proof.before_writing()
    known = driver.run(redis_id())
    assert [known] == ids_of(storage)
    assert driver.run(redis_id("a" * 32)) == known

    other = Storage.open(str(tmp_path / "other"))
    for use in (StorageProof(other, driver.run).before_missing, StorageProof(other, driver.run).before_writing):
        with pytest.raises(StorageUnavailable, match="EMBEDQ_STORAGE_URL"):
            use()
    assert ids_of(other) == [], "it may be somebody else's"
    assert [accept(other, driver.run)] == ids_of(other) == [driver.run(redis_id())]
    with pytest.raises(StorageUnavailable, match="belongs to another Redis"):
        proof.before_missing()

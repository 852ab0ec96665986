"""What jobs and files leave for the sweep, and when it is due; which storage a Redis knows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.errors import StorageUnavailable
from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.scripts import Operation
from tasks.records import store
from tasks.records.api_keys import Mark, make_mark
from tasks.records.files import (
    FileRecord,
    Purpose,
    delete_file,
    due_litter,
    file_id_from,
    litter_done,
    put_file,
    stored_name,
)
from tasks.records.ingestions import IngestionRecord
from tasks.records.jobs import Counts, DonePage, JobError, JobRecord, JobStatus, Page, ended_jobs
from tasks.records.moves import Move, delete_job, retry_job
from tasks.records.storage_identity import FOLDER, StorageProof, accept, ids_of, redis_id
from tasks.records.store import MOST
from tasks.storage.storage import Storage
from tests.integration.ledger.driver import START_MS, Driver
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
GRACE_MS = 60_000
of_both_kinds = pytest.mark.parametrize("new", KINDS, ids=["batches", "ingestions"])


def due(driver: Driver) -> list[str]:
    """Names of files that may be deleted now."""
    return driver.run(due_litter(driver.now_ms, 100))


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


def test_pages_that_a_retry_opens_again_are_there_after_the_sweep(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new_ingestion)
    change(driver, made, lambda move: move.set(request={**move.record.request, "listed": f"ann/{made}/listed"}))
    sweeper.storage.write(f"ann/{made}/listed", b"x")
    end(driver, made, JobStatus.FAILED)
    sweeper.to_the_end()
    assert sweeper.names(f"ann/{made}") == [f"ann/{made}/{name}" for name in ("1.list", "2.done", "listed")]


@pytest.mark.parametrize(
    ("status", "code", "again"),
    [
        (JobStatus.COMPLETED, "", True),
        (JobStatus.FAILED, "worker_lost", True),
        (JobStatus.FAILED, "source_failed", False),
        (JobStatus.CANCELLED, "", False),
    ],
)
def test_what_was_to_be_loaded_stays_only_where_somebody_may_try_it_again(
    driver: Driver, tmp_path: Path, status: JobStatus, code: str, again: bool
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new_ingestion)
    request: dict[str, Any] = {**SPEC, "listed": f"ann/{made}/listed"}
    change(driver, made, lambda move: move.set(request=request, revision="r"))
    sweeper.storage.write(request["listed"], b"x")
    change(driver, made, lambda move: move.stop(status, *([JobError(code, "No.")] if code else [])))
    end(driver, made, status)
    sweeper.to_the_end()
    left = ("1.list", "2.done", "listed") if again else ("2.done",)
    assert sweeper.names(f"ann/{made}") == [f"ann/{made}/{name}" for name in left]


@of_both_kinds
def test_an_end_that_comes_again_under_another_move_waits_anew(driver: Driver, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new)
    end(driver, made, JobStatus.FAILED)
    sweeper()
    sweeper.passes(59)
    driver.client.hset(f"eq:{job(driver, made).record.KIND}:{made}", "change", "another")  # Redis has gone back
    sweeper()
    sweeper.passes(59)
    sweeper()
    assert f"ann/{made}/1.parsed" in sweeper.names(f"ann/{made}")
    sweeper.passes(1)
    sweeper()
    assert f"ann/{made}/1.parsed" not in sweeper.names(f"ann/{made}")


@of_both_kinds
def test_what_was_deleted_is_litter(driver: Driver, tmp_path: Path, new: New) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = with_parts(sweeper, new)
    end(driver, made)
    sweeper.to_the_end()
    assert not waiting(driver, made)
    make(driver, delete_job(job(driver, made)))
    assert waiting(driver, made)
    sweeper()
    sweeper.passes(59)
    sweeper()
    assert seen(driver, made) is not None
    sweeper.passes(1)
    sweeper()
    assert seen(driver, made) is None
    assert sweeper.names(f"ann/{made}") == []


@pytest.mark.parametrize("seen_by_sweep", ["listed", "read"])
def test_a_retry_that_comes_while_its_job_expires_is_not_lost(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_by_sweep: str
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = end(driver, with_parts(sweeper, new_ingestion), JobStatus.FAILED)
    move, kind, real = retry_job(ingestion(driver, made)), job(driver, made).record.KIND, driver.ledger.run
    retried: list[bool] = []

    def run(operation: Operation[Any]) -> Any:
        reply = real(operation)
        here = reply == [(kind, made)] if seen_by_sweep == "listed" else getattr(reply, "id", "") == made
        if here and not retried:
            retried.append(move is not None and real(move.operation()) is not None)
        return reply

    sweeper.passes(DAY_MS / 1000)
    monkeypatch.setattr(driver.ledger, "run", run)
    sweeper()
    assert retried == [True]
    found = job(driver, made)
    assert (found.deleted, found.record.status, found.record.stop) == (False, JobStatus.IN_PROGRESS, None)


def test_a_job_expires_behind_many_that_nobody_can_read(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = end(driver, create(driver, new_ingestion("ann")))
    driver.client.zadd("eq:job-ends", {f"batch:{new_batch().id}": 1 for _ in range(250)})
    sweeper.passes(DAY_MS / 1000)
    sweeper()
    driver.client.delete("eq:job-ends")
    assert job(driver, made).deleted


def test_the_sweep_works_off_many_jobs(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path)
    for _ in range(MOST + 20):
        end(driver, create(driver, new_ingestion("ann")))
    sweeper()
    sweeper.passes(GRACE_MS / 1000)
    sweeper(rounds=2)
    assert driver.run(ended_jobs(IngestionRecord)) == [], "all have ended in the same minute"


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
            stored=stored_name("ann", file_id),
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
    assert due(driver) == [early.stored]
    driver.advance(5_000)
    assert due(driver) == [early.stored, short.stored]
    for name in (short.stored, early.stored):
        driver.run(litter_done(name))
    driver.run(litter_done(early.stored))  # by another sweep, late
    assert driver.client.zcard("eq:litter") == 0


# ---- what cannot be deleted


NO_NAME = "ann/No name of ours"


def complaints(log: pytest.LogCaptureFixture) -> int:
    return log.text.count("could not be deleted")


def test_files_that_cannot_be_deleted_wait_behind_all_others(
    driver: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    sweeper.storage.write("ann/file-a", b"x")
    stuck = [f"{NO_NAME} {n}" for n in range(30)]
    driver.client.zadd("eq:litter", dict.fromkeys(stuck, 1) | {"ann/file-a": 2})
    sweeper()
    assert len(due(driver)) == 11, "so many failures are enough for a round"
    sweeper()
    assert sweeper.names("ann") == []
    assert due(driver) == []
    assert complaints(caplog) == 1
    sweeper.passes(599)
    assert due(driver) == []
    sweeper.passes(1)
    assert sorted(due(driver)) == sorted(stuck)
    sweeper()
    assert complaints(caplog) == 2
    driver.client.delete("eq:litter")


def test_jobs_of_which_something_cannot_be_deleted_wait_behind_all_others(
    driver: Driver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = Sweeper(driver, tmp_path)
    made = [end(driver, create(driver, new_ingestion("ann", ttl_ms=DAY_MS))) for _ in range(25)]
    for job_id in made:
        sweeper.storage.write(f"ann/{job_id}/1.parsed", b"x")
    stuck = [tmp_path / "storage" / "ann" / job_id / "No name of ours" for job_id in made[:-1]]
    for path in stuck:
        path.write_bytes(b"x")
    sweeper()
    sweeper.passes(60)
    sweeper(rounds=2)
    assert sweeper.names(f"ann/{made[-1]}") == []
    assert not waiting(driver, made[-1])
    assert complaints(caplog) == 1
    for path in stuck:
        path.unlink()
    sweeper.passes(599)
    sweeper()
    assert all(waiting(driver, job_id) for job_id in made[:-1])
    sweeper.passes(1)
    sweeper()
    assert not any(waiting(driver, job_id) for job_id in made)


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


def test_of_a_server_without_datasets_everything_goes(driver: Driver, tmp_path: Path) -> None:
    sweeper = Sweeper(driver, tmp_path, storage_url="s3://bucket", datasets="")
    sink = {"type": "dataset"}
    made = end(driver, create(driver, new_ingestion("ann", request={**SPEC, "sink": sink})))
    make(driver, delete_job(job(driver, made)))
    sweeper.to_the_end()
    assert seen(driver, made) is None


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


def test_of_two_who_come_first_in_the_same_moment_both_go_on(driver: Driver, storage: Storage) -> None:
    """Each finds no id, and writes one. Redis takes one of them."""
    other = StorageProof(storage, driver.run)

    def run(operation: Operation[str]) -> str:
        written = ids_of(storage)
        if len(written) == 1 and not driver.run(redis_id()):  # its own is there, and Redis does not know it yet
            storage.delete(f"{FOLDER}/{written[0]}")
            other.before_writing()
            storage.write(f"{FOLDER}/{written[0]}", b"")
        return driver.run(operation)

    proof = StorageProof(storage, run)
    proof.before_writing()
    for one in (proof, other):
        one.before_missing()
    assert len(ids_of(storage)) == 2
    assert driver.run(redis_id()) in ids_of(storage)


def test_an_empty_redis_takes_the_storage_that_it_finds(driver: Driver, storage: Storage) -> None:
    StorageProof(storage, driver.run).before_writing()
    (known,) = ids_of(storage)
    driver.client.flushall()
    again = StorageProof(storage, driver.run)
    again.before_missing()
    again.before_writing()
    assert driver.run(redis_id()) == known

"""Jobs in a ledger whose clock stands still: what callers, the driver and the sweep do to them, written short."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import watch
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.records.batches import BatchRecord, is_batch_id, new_batch_id, read_batch
from tasks.records.ingestions import IngestionRecord, new_ingestion_id, read_ingestion
from tasks.records.jobs import JobRecord, JobStatus, create_job, read_tasks_of
from tasks.records.moves import Move
from tasks.records.storage_identity import StorageProof
from tasks.records.store import ANY_ROOM, Room
from tasks.storage.storage import Storage
from tasks.storage.sweep import GRACE_S, Sweep
from tests.integration.ledger.driver import Driver
from worker_config.settings import load_settings

Runs: TypeAlias = Driver | Ledger
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
SPEC = {"source": {"files": ["file-1"]}, "model": "org/model", "mode": "sync"}


def new_batch(owner: str = "anonymous", **changed: Any) -> BatchRecord:
    """A day of window; its record is kept for an hour."""
    asked = {"input_file_id": "file-1", "completion_window": "24h"} | changed.pop("request", {})
    values = {"id": new_batch_id(), "request": asked, "window_ms": DAY_MS, "ttl_ms": HOUR_MS} | changed
    return BatchRecord(owner=owner, **values)


def new_ingestion(owner: str = "anonymous", **changed: Any) -> IngestionRecord:
    """Its record is kept for an hour."""
    values = {"id": new_ingestion_id(), "request": SPEC, "model": "org/model", "ttl_ms": HOUR_MS} | changed
    return IngestionRecord(owner=owner, **values)


def create(driver: Runs, record: JobRecord, room: Room = ANY_ROOM) -> str:
    """Stores it; its id, or that of the one which its alias names."""
    return driver.run(create_job(record, room, "d" * 32))


def seen(driver: Runs, job_id: str) -> Any:
    read: Any = read_batch if is_batch_id(job_id) else read_ingestion
    found = driver.run(read(job_id))
    return None if found is None else driver.run(read_tasks_of([found]))[0]


def job(driver: Runs, job_id: str) -> Any:
    found = seen(driver, job_id)
    assert found is not None
    return found


def make(driver: Runs, move: Move | None) -> bool:
    """Whether there was a move, and it was made."""
    return move is not None and driver.run(move.operation()) is not None


def change(driver: Runs, job_id: str, *steps: Callable[[Move], object]) -> bool:
    """A move of it as it is now, in which all this is done."""
    move = Move(job(driver, job_id))
    for step in steps:
        step(move)
    return make(driver, move)


def end(driver: Runs, job_id: str, status: JobStatus = JobStatus.COMPLETED) -> str:
    """It ends in this state; its id."""
    assert change(driver, job_id, lambda move: move.end(status))
    return job_id


class Sweeper:
    """The sweep of one storage, under a clock of its own that goes with that of Redis. It has begun already."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver, self.clock_s = driver, 0.0
        plain = Storage.open(str(folder / "storage"))
        self.storage = plain.proved(StorageProof(plain, driver.run))
        self.storage.write("begun", b"1")
        settings = load_settings(datasets=str(folder / "datasets"))
        self.sweep = Sweep(driver.ledger, self.storage, settings, lambda: self.clock_s)
        self.sweep()  # whoever takes a storage over waits for the next look

    def passes(self, seconds: float) -> None:
        """So much time; somebody keeps house, and the sweep looks."""
        self.clock_s += seconds
        self.driver.advance(round(seconds * 1000))
        self.driver.run(watch(DOCUMENTS))
        self.sweep()

    def to_the_end(self) -> None:
        """It sees what there is, and deletes it a minute later; a deleted job is seen once more."""
        self.sweep()
        for _ in range(3):
            self.passes(GRACE_S + 1)

    def names(self, folder: str) -> list[str]:
        return sorted(stored.name for stored in self.storage.stored(folder))

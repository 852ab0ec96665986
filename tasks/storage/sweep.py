"""The sweep: what is litter, and when it goes.

An object's name begins with its owner and its job. The sweep removes what the record of an ended job does not name, a
minute after it first saw this very last move; the objects of files whose records are gone for a minute; what lies under
a purged owner; and unfinished files after a day. Nothing else: this Redis may be a copy that does not know the rest, or
one that lost it. A person lists and removes that (`embedq storage unknown`).

One Redis sweeps a storage: the one that renews the object `sweeper` in it.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson

from tasks.datasets.places import Datasets, has_datasets, open_datasets
from tasks.errors import DiskFull, NotStored, SchemaMismatch, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.scripts import Operation
from tasks.records import files, store
from tasks.records.batches import Batch, BatchRecord, read_batch
from tasks.records.files import FileRecord
from tasks.records.ingestions import Ingestion, IngestionRecord, read_ingestion
from tasks.records.jobs import JobRecord, JobStatus, all_done, clock, due_jobs, ended_jobs
from tasks.records.moves import Move, delete_job, retry_job
from tasks.records.storage_identity import redis_id
from tasks.storage.purged_owners import RARELY_S, Attempts, OwnerSweep, Stopped
from tasks.storage.storage import Storage
from worker_config.settings import Settings

SWEEPER = "sweeper"
"""The object that says which Redis sweeps the storage: its `run_id`, which every start and every copy has anew, and the
number of its database."""
RENEW_S = 60.0
TAKE_OVER_S = 600.0
"""So long the object must stay as it is before another Redis takes it: one that was restarted, or promoted."""
SWEEP_EVERY_S = 5.0
GRACE_S = 60.0
"""Nothing that cannot be taken back follows from a state that can: a Redis that goes back by less has lost nothing."""
SPARE_S = 86_400.0
"""What was begun and not finished is removed when it is so old."""
_AT_ONCE = 100
_FAILURES = 20
"""Of deletions in a round: each may have taken many seconds."""
_KINDS: tuple[tuple[type[JobRecord], Callable[[str], Operation[Any]]], ...] = (
    (BatchRecord, read_batch),
    (IngestionRecord, read_ingestion),
)

_log = logging.getLogger(__name__)


class SweeperLease:
    """Whether this Redis is the one that sweeps the storage. It trusts no clock but its own pauses.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._renewed_at: float | None = None
        self._seen: tuple[bytes, float] = (b"", clock())
        self._said = ""

    def holds(self, storage: Storage, ledger: Ledger) -> bool:
        """Renews the object at most every `RENEW_S`, and says whether it is this Redis's.

        Whoever takes it over waits for the next look: another one may have taken it in the same moment.

        Raises:
            StorageUnavailable, RedisUnavailable: it cannot be known.
        """
        now = self._clock()
        if self._renewed_at is not None and now - self._renewed_at < RENEW_S:
            return True
        self._renewed_at = None
        run_id = run_id_of(ledger)
        if not ledger.run(redis_id()):  # nothing was ever stored, and this may be the wrong place for the first object
            return False
        held = read_sweeper(storage)
        if not run_id or (sweeper_of(held) != run_id and not self._is_free(held, now)):
            self._say(sweeper_of(held), run_id)
            return False
        lease = {"redis": run_id, "at": datetime.now(UTC).isoformat(timespec="microseconds")}
        storage.write(SWEEPER, orjson.dumps(lease))
        if sweeper_of(held) == run_id:
            self._renewed_at, self._said = now, ""
        return self._renewed_at is not None

    def _is_free(self, held: bytes, now: float) -> bool:
        if held != self._seen[0]:
            self._seen = (held, now)
        return not held or now - self._seen[1] >= TAKE_OVER_S

    def _say(self, other: str, run_id: str) -> None:
        if other != self._said:
            _log.warning(
                "nothing is deleted from the storage (EMBEDQ_STORAGE_URL): the Redis with run_id %s sweeps it, and "
                "this one (EMBEDQ_REDIS_URL) has run_id %s. A copy for a drill needs a storage of its own; a Redis "
                "that was restarted or promoted takes over after ten minutes",
                other or "unknown",
                run_id or "unknown (INFO does not tell it)",
            )
        self._said = other


def read_sweeper(storage: Storage) -> bytes:
    """The object `sweeper`; empty where there is none. Raises `StorageUnavailable`."""
    try:
        return storage.read(SWEEPER)
    except NotStored:
        return b""


def run_id_of(ledger: Ledger) -> str:
    """What Redis has called itself at its start, anew each time, and the database; "" where it does not tell.

    Raises:
        RedisUnavailable: no answer.
    """
    run_id = ledger.run(Operation(lambda replies: replies[0].get("run_id"), commands=(("INFO", "server"),)))
    return f"{run_id}/{ledger.client.get_connection_kwargs().get('db') or 0}" if run_id else ""


def sweeper_of(held: bytes) -> str:
    """The `run_id` in the object; "" where there is none. What cannot be read is of nobody that is known."""
    try:
        return str(orjson.loads(held)["redis"])
    except (ValueError, TypeError, KeyError):
        return ""


class Sweep:
    """One round of the sweep with each call. `clock`: seconds that only grow."""

    def __init__(
        self, ledger: Ledger, storage: Storage, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ledger, self._storage, self._settings, self._clock = ledger, storage, settings, clock
        self._lease = SweeperLease(clock)
        self._rarely_due = clock()
        self._attempt = Attempts(clock)
        self._seen: dict[tuple[str, str], float] = {}
        """Id and last move of ended jobs -> when this process first saw it: no clock of a host is compared. Of one that
        could not be deleted it is later, so that it is due in ten minutes."""

    def __call__(self) -> None:
        """Sweeps. Where another Redis sweeps the storage, it says so once and deletes nothing.

        The storage is asked also where nothing is to be deleted: what is wrong with it is seen before a job comes.

        Raises:
            StorageUnavailable, DiskFull: the storage cannot be used, or not now.
            RedisUnavailable: a later call does the rest.
        """
        self._storage.require()
        if not self._lease.holds(self._storage, self._ledger):
            return
        now_ms = self._ledger.run(clock())
        owners = OwnerSweep(self._storage, self._datasets, self._ledger, self._go_on, self._attempt)
        with suppress(Stopped):
            self._expire_jobs(now_ms)
            self._sweep_files(now_ms)
            self._sweep_jobs()
            owners.sweep(now_ms)
            if self._clock() >= self._rarely_due:
                self._rarely_due = self._clock() + RARELY_S
                self._attempt("unfinished objects", partial(self._storage.discard_unfinished, SPARE_S))
                self._attempt("what late workers wrote", partial(owners.sweep_late, now_ms))

    def _go_on(self) -> None:
        """To be called before each deletion: raises `Stopped` unless this Redis is known to sweep the storage still."""
        with suppress(DiskFull, StorageUnavailable):  # of which the next round tells
            if self._lease.holds(self._storage, self._ledger):
                return
        raise Stopped

    def _datasets(self) -> Datasets | None:
        """None: this server has no place for datasets, so there are none.

        Raises:
            Invalid: it has, and this worker lacks a library. What has datasets waits for one that does not.
        """
        return open_datasets(self._settings) if has_datasets(self._settings) else None

    def _expire_jobs(self, now_ms: int) -> None:
        """Jobs that were kept long enough are deleted, as their owners could have done."""
        read, left = {kind.KIND: read for kind, read in _KINDS}, 0
        while due := self._ledger.run(due_jobs(now_ms, left + _AT_ONCE))[left:]:
            for kind, job_id in due:
                self._go_on()
                job = self._ledger.run(read[kind](job_id))
                # Its owner may have tried it again since it was listed. What comes later refuses the move.
                expired = job is not None and job.record.status.terminal and (job.expires_ms or 0) <= now_ms
                move = delete_job(job) if job is not None and expired else None
                left += move is None or self._ledger.run(move.operation(wakes=False)) is None

    def _sweep_files(self, now_ms: int) -> None:
        failed = 0
        while failed < _FAILURES and (due := self._ledger.run(files.due_litter(now_ms, _FAILURES - failed))):
            for name in due:
                self._go_on()
                deleted = self._attempt(name, partial(self._storage.delete, name))
                later = files.postpone_litter(name, now_ms + round(RARELY_S * 1000))
                self._ledger.run(files.litter_done(name) if deleted else later)
                failed += not deleted

    def _sweep_jobs(self) -> None:
        still: dict[tuple[str, str], float] = {}
        due: list[tuple[Callable[[str], Operation[Any]], str, str]] = []
        for kind, read in _KINDS:
            after = ""
            while some := self._ledger.run(ended_jobs(kind, after)):
                after = some[-1][0]
                for seen in some:
                    still[seen] = self._seen.get(seen, self._clock())
                    if self._clock() - still[seen] >= GRACE_S:
                        due.append((read, *seen))
        self._seen, failed = still, 0
        for read, job_id, change in due:
            self._go_on()
            if not self._attempt(job_id, partial(self._sweep_job, read, job_id, change)):
                self._seen[job_id, change] = self._clock() + RARELY_S - GRACE_S
                failed += 1
                if failed == _FAILURES:
                    return

    def _sweep_job(self, read: Callable[[str], Operation[Any]], job_id: str, change: str) -> None:
        """Removes what it has and does not name; of one that is deleted also its unnamed dataset, and the record.

        Objects are listed before the record is read: who tries it again meanwhile writes others.
        """
        job = self._ledger.run(read(job_id))
        there = [] if job is None else list(self._storage.stored(job.record.folder.removesuffix("/")))
        job = self._ledger.run(read(job_id))
        if job is None or job.change != change:
            return
        named = self._named(job)
        self._storage.delete_all((stored.name for stored in there if stored.name not in named), self._go_on)
        if job.record.status is not JobStatus.DELETED:
            move = Move(job)
            move.set(swept=True)
            self._ledger.run(move.operation(wakes=False))
            return
        sink = job.record.request.get("sink", {})
        # A dataset that only this ingestion names goes with it. One that has a name of its own is the owner's.
        unnamed = sink and not (sink.get("dataset") or sink.get("table"))
        datasets = self._datasets() if unnamed else None
        if datasets is not None:
            self._go_on()
            datasets.delete(job.owner, job.id)
        self._ledger.run(store.remove(type(job.record), job.id, job.change))

    def _named(self, job: Batch | Ingestion) -> set[str]:
        """What its record names: files that it has made, and, while somebody sees it, what became of its documents.

        Of one that may be tried again also what that needs: what was listed, and the source of the request.

        Raises:
            SchemaMismatch: this version does not know what it names.
        """
        if isinstance(job, Batch):
            found = [file for file in self._ledger.run(store.read(FileRecord, [*job.record.files.values()])) if file]
            if any(file.record is None for file in found):
                raise SchemaMismatch("another version of embedq made a record of its files")
            return {file.record.stored for file in found if file.record is not None}
        record = job.record
        if record.status is JobStatus.DELETED:
            return set()
        names: set[str | None] = {page.obj for page in self._ledger.run(all_done(job.id, record.KIND)).values()}
        if retry_job(job) is not None:
            names |= {page.src for page in job.pages.values()}
            names.add(record.request.get("listed"))
        return {name for name in names if name}

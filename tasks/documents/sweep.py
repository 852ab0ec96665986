"""The sweep: deletes what a record has named as litter, what a dataset has replaced, what purged owners have; no more.

What no record names is left alone: this Redis may be a copy that does not know it, or one that lost it. A person lists
and removes it (`embedq storage unknown`). One Redis sweeps a storage: the one that renews the object `sweeper` in it.
"""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import orjson

from tasks.documents.context import StepContext
from tasks.documents.purging import sweep_late, sweep_owners
from tasks.documents.sinks.parquet.dataset_cleanup import sweep_datasets
from tasks.errors import NotStored, RedisUnavailable, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.scripts import Operation
from tasks.records import datasets
from tasks.records.batches import KINDS, read_batch
from tasks.records.files import FOLDER as FILES
from tasks.records.files import read_file
from tasks.records.ingestion_operations import read_ingestion
from tasks.records.ingestions import Ingestion, IngestionStatus
from tasks.records.litter import Litter, due_litter, litter_done
from tasks.records.storage_identity import redis_id
from tasks.storage.storage import Storage

SWEEPER = "sweeper"
"""The object that says which Redis sweeps the storage: its `run_id`, which every start and every copy has anew, and the
number of its database."""
RENEW_S = 60.0
TAKE_OVER_S = 600.0
"""So long the object must stay as it is before another Redis takes it: one that was restarted, or promoted."""
SWEEP_EVERY_S = 5.0
RARELY_S = 600.0
"""Between two looks at all datasets, and at what could not be deleted."""
SPARE_S = 86_400.0
"""What was begun and not finished is removed when it is so old."""
_AT_ONCE = 100
_FAILURES_IN_A_ROW = 20
"""Of deletions, each of which may have taken many seconds."""

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


def sweep_litter(storage: Storage, ledger: Ledger, may_go_on: Callable[[], bool] = lambda: True) -> int:
    """Deletes what is due, as long as it may; the number of entries.

    What cannot be deleted, for whatever reason, is due again later and is in nobody's way until then.

    Raises:
        RedisUnavailable: a later sweep does the rest.
    """
    done, failed = 0, list[str]()
    in_a_row = 0
    while in_a_row < _FAILURES_IN_A_ROW and (due := ledger.run(due_litter(_AT_ONCE))):
        for litter in due:
            if in_a_row == _FAILURES_IN_A_ROW or not may_go_on():
                break
            try:
                _delete(storage, ledger, litter)
            except RedisUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - one object must not keep all others
                failed.append(f"{litter.name} ({type(error).__name__})")
                in_a_row += 1
                ledger.run(litter_done(litter, again_s=RARELY_S))
            else:
                done, in_a_row = done + 1, 0
                ledger.run(litter_done(litter))
        else:
            continue
        break
    if failed:
        _log.warning("%d entries could not be deleted from the storage, the first: %s", len(failed), failed[0])
    return done


def _delete(storage: Storage, ledger: Ledger, litter: Litter) -> None:
    if not litter.job_id:
        storage.delete(litter.name)
    elif litter.name.startswith("batches/"):
        _delete_of_batch(storage, ledger, litter)
    else:
        _delete_of_ingestion(storage, ledger, litter)


def _delete_of_batch(storage: Storage, ledger: Ledger, litter: Litter) -> None:
    batch = ledger.run(read_batch(litter.job_id))
    if batch is not None and not batch.status.terminal:
        return
    storage.delete(litter.name)
    for file_id in (batch.file_id(kind) for kind in KINDS) if batch else ():
        # What attempts at its files have left. The one that counts is named by the record of the file.
        record = ledger.run(read_file(file_id))
        for stored in storage.stored(f"{FILES}/{file_id}"):
            if record is None or stored.name != record.stored:
                storage.delete(stored.name)


def _delete_of_ingestion(storage: Storage, ledger: Ledger, litter: Litter) -> None:
    ingestion = ledger.run(read_ingestion(litter.job_id))
    if ingestion is not None and not ingestion.deleted:
        remove_work(storage, ingestion)
        return
    # A dataset that only this ingestion names goes with it. One that has a name of its own is the owner's.
    while (version := datasets.present(storage, litter.owner, litter.job_id)).catalog.exists:
        if not version.catalog.anonymous or datasets.delete_version(storage, version):
            break
    storage.delete(litter.name)


def remove_work(storage: Storage, ingestion: Ingestion) -> None:
    """Removes the work of one that has ended for good; what was begun since it was read, by another try, stays."""
    folder = f"{ingestion.folder}work/"
    if not ingestion.status.terminal or ingestion.resumable:
        return
    if ingestion.status is IngestionStatus.CANCELLED:  # nobody tries it again
        storage.delete(folder)
        storage.delete(ingestion.ids_folder)
        return
    pages = {int(stored.name.removeprefix(folder).partition("/")[0]) for stored in storage.stored(folder)}
    for page in pages:
        if page < ingestion.next_page:
            storage.delete(ingestion.page_folder(page))
    storage.delete(ingestion.ids_folder)


class StorageSweep:
    """The step that sweeps, in a thread of its own. `clock`: seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lease = SweeperLease(clock)
        self._rarely_due = clock()

    def __call__(self, context: StepContext) -> None:
        """Sweeps. Where another Redis sweeps the storage, it says so once and deletes nothing.

        The storage is asked also where nothing is to be deleted: what is wrong with it is seen before a job comes.

        Raises:
            StorageUnavailable: the storage cannot be used, or not now.
            RedisUnavailable: a later call does the rest.
        """
        storage, ledger = context.storage, context.ledger
        storage.require()

        def may_go_on() -> bool:
            context.moved()
            return self._lease.holds(storage, ledger)

        if not may_go_on():
            return
        sweep_litter(storage, ledger, may_go_on)
        sweep_owners(storage, ledger, may_go_on)
        if self._clock() >= self._rarely_due:
            self._rarely_due = self._clock() + RARELY_S
            rare: tuple[Callable[[], object], ...] = (
                partial(storage.discard_unfinished, SPARE_S),
                partial(sweep_datasets, storage),
                partial(sweep_late, storage, ledger),
            )
            for part in rare:
                try:
                    part()
                except StorageUnavailable as error:  # of some objects: all others went
                    _log.warning("not all could be deleted from the storage: %s", error.detail)

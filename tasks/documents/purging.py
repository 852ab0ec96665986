"""The sweep of purged owners: removes what they have, a little in each round, until their account is empty.

Each step may be repeated, and may be the last of its process. The mark of the owner lets nothing new come.
"""

from collections.abc import Callable, Iterator

from tasks.ledger.cancel import forget
from tasks.ledger.client import Ledger
from tasks.ledger.read import list_tasks
from tasks.records import datasets, files, store
from tasks.records.api_keys import GONE, PURGE, Mark
from tasks.records.batches import BatchStatus, delete_batch, list_batches, move_batch
from tasks.records.ingestion_operations import Move, delete_ingestion, list_ingestions, move_ingestion
from tasks.records.ingestions import IngestionStatus
from tasks.records.store import Order, ReadRecord, left_of
from tasks.storage.storage import Storage

_AT_ONCE = 100
_OPEN_BATCH = [status for status in BatchStatus if not status.terminal]
_OPEN_INGESTION = [status for status in IngestionStatus if not status.terminal]


def sweep_owners(storage: Storage, ledger: Ledger, may_go_on: Callable[[], bool] = lambda: True) -> None:
    """Removes some of what purged owners have.

    Raises:
        StorageUnavailable, RedisUnavailable: a later sweep does the rest.
    """
    for last in ledger.run(store.listed(Mark, PURGE, limit=_AT_ONCE, order=Order.ANY)).records:
        _sweep_owner(storage, ledger, last, may_go_on)


def _sweep_owner(storage: Storage, ledger: Ledger, last: ReadRecord[Mark], may_go_on: Callable[[], bool]) -> None:
    mark = last.record
    if mark is None:  # of another version, which sweeps it
        return
    owner = mark.owner
    for remove in (_end_jobs, _forget_tasks):
        remove(ledger, owner)
    for of in (owner, files.uploads_of(owner)):
        for one in ledger.run(store.listed(files.FileRecord, of, limit=_AT_ONCE)).records:
            if not may_go_on():
                return
            if one.record is not None:
                storage.delete(one.record.stored)  # before the record, which is what leads to it
            ledger.run(files.delete_file(one.id))
    for folder in datasets.folders_of(owner):
        if not may_go_on():
            return
        storage.delete(folder)
    if not ledger.run(left_of(owner)):
        now_s = ledger.run(store.news()).now_s
        ledger.run(store.change(last, mark.model_copy(update={"swept": now_s})))  # or somebody has changed it: later


def sweep_late(storage: Storage, ledger: Ledger) -> None:
    """Removes datasets of owners who had nothing any more: a worker that stood still has written them since.

    Raises:
        StorageUnavailable, RedisUnavailable: a later sweep does the rest.
    """
    gone = {folder for owner in _gone(ledger) for folder in datasets.folders_of(owner)}
    for place in (datasets.CATALOGS, datasets.PARTS) if gone else ():
        for stored in storage.stored(place):
            if f"{place}/{stored.name.split('/')[1]}/" in gone:
                storage.delete(stored.name)


def _gone(ledger: Ledger) -> Iterator[str]:
    after, more = "", True
    while more:
        owners, more = ledger.run(store.listed_ids(Mark.KIND, GONE, after=after, limit=store.MOST))
        yield from owners
        after = owners[-1] if owners else ""


def _end_jobs(ledger: Ledger, owner: str) -> None:
    """Ends and deletes batches and ingestions; their steps forget their tasks, and then the records."""
    for batch_id in ledger.run(list_batches(owner, after=None, limit=_AT_ONCE))[0]:
        ledger.run(move_batch(batch_id, BatchStatus.CANCELLED, only_from=_OPEN_BATCH))
        ledger.run(delete_batch(batch_id))
    for ingestion_id in ledger.run(list_ingestions(owner, after=None, limit=_AT_ONCE))[0]:
        ledger.run(move_ingestion(ingestion_id, Move(_OPEN_INGESTION, to=IngestionStatus.CANCELLED)))
        ledger.run(delete_ingestion(ingestion_id))


def _forget_tasks(ledger: Ledger, owner: str) -> None:
    """Forgets tasks that are listed. The others end when a worker meets them, and are forgotten in their time."""
    for task in ledger.run(list_tasks(owner, limit=_AT_ONCE))[0]:
        ledger.run(forget(task.queue, task.id))

"""Cleanup, in a thread of its own: it deletes from the storage, now and then, what nothing in Redis refers to."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice

from tasks.documents.context import StepContext
from tasks.documents.sinks.parquet.dataset_cleanup import sweep_datasets
from tasks.errors import StorageUnavailable
from tasks.ledger import Ledger
from tasks.records import files, ingestions
from tasks.records.batches import KINDS, open_batches, read_batch, read_batches
from tasks.records.files import MAX_PAGE, file_id_of, read_files
from tasks.records.ingestion_operations import read_ingestion
from tasks.records.ingestions import Ingestion, IngestionStatus
from tasks.records.storage_identity import NOT_OURS, adopt, confirmed, id_of, is_ours
from tasks.storage.storage import Storage

# Files: their record expired, or was never made.

SPARE_S = 86_400.0
"""What is younger is left alone: an upload, or an output whose record waits until Redis is back."""

_FAILURES_IN_A_ROW = 20
_ALL = 2**31
_BATCHES_AT_ONCE = 100

_log = logging.getLogger(__name__)


def sweep(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Deletes what nothing refers to and what was last written to `spare_s` ago or earlier; the number of objects.

    Several may sweep at the same time. Parts of batches are not touched. None, where the
    storage is another Redis's.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    if not is_ours(storage, ledger):
        return 0
    limit_ms = (time.time() - spare_s) * 1000
    awaited = _Awaited(ledger)
    old = (stored.name for stored in storage.stored(files.FOLDER) if stored.modified_ms <= limit_ms)
    unnamed = (_unnamed(awaited.without(names), ledger) for names in _in_pieces(old, MAX_PAGE))
    try:
        deleted = delete_all(storage, confirmed(storage, ledger, unnamed))
    finally:
        discarded = storage.discard_unfinished(spare_s)
    deleted += discarded
    if deleted:
        _log.info("deleted %d stored objects that nothing refers to", deleted)
    return deleted


def delete_all(storage: Storage, names: Iterable[str]) -> int:
    """Deletes objects and folders (with a "/" at the end); their number.

    Raises:
        StorageUnavailable: not all could be deleted. The others are, unless too many in a row could not: each may have
            taken many seconds.
    """
    deleted = in_a_row = 0
    raised: StorageUnavailable | None = None
    for name in names:
        try:
            storage.delete(name)
        except StorageUnavailable as error:
            raised, in_a_row = error, in_a_row + 1
            if in_a_row == _FAILURES_IN_A_ROW:
                break
        else:
            deleted, in_a_row = deleted + 1, 0
    if raised is not None:
        raise raised
    return deleted


class _Awaited:
    """Outputs of batches that have not ended: their records may still come, however old they are.

    Read before the records: who has ended since has made them. Not where nothing old could be an output.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ids: set[str] | None = None

    def without(self, names: list[str]) -> list[str]:
        """Those of the stored names that no open batch waits for."""
        if self._ids is None and any("." in name for name in names):  # only what jobs write has a fence
            self._ids = set(self._read())
        return [name for name in names if file_id_of(name) not in (self._ids or ())]

    def _read(self) -> Iterator[str]:
        open_ids = self._ledger.run(open_batches(_ALL))
        for ids in _in_pieces(open_ids, _BATCHES_AT_ONCE):
            for batch in self._ledger.run(read_batches(ids)):
                yield from (batch.file_id(kind) for kind in KINDS)


def _unnamed(names: list[str], ledger: Ledger) -> list[str]:
    records = ledger.run(read_files([file_id_of(name) for name in names]))
    return [name for name, record in zip(names, records, strict=True) if record is None or record.stored != name]


def _in_pieces(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, size)):
        yield piece


# Batches: a worker that was taken for dead may have written into a folder after it was removed.

_FOLDER = "batches"


def sweep_batches(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Removes the folders of ended or forgotten batches last written to `spare_s` ago or earlier; their number.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    old = set(_old(storage, (time.time() - spare_s) * 1000))
    ended = ([f"{_FOLDER}/{batch_id}/"] for batch_id in old if _has_ended(ledger, batch_id))
    return delete_all(storage, confirmed(storage, ledger, ended))


def _has_ended(ledger: Ledger, batch_id: str) -> bool:
    batch = ledger.run(read_batch(batch_id))
    return batch is None or batch.status.terminal


def _old(storage: Storage, limit_ms: float) -> Iterator[str]:
    for stored in storage.stored(_FOLDER):
        if stored.modified_ms <= limit_ms:
            yield stored.name.split("/")[1]


# Ingestions: their record has expired, or they have ended and a worker that was taken for dead has written since.


def sweep_ingestions(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Removes what was last written to `spare_s` ago or earlier; the number of folders.

    That is all of ingestions that the ledger holds no more, and the work of those that have ended.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    removed = 0
    for ingestion_id, ingestion in confirmed(storage, ledger, _over(storage, ledger, spare_s)):
        if ingestion is None:
            storage.delete(f"{ingestions.FOLDER}/{ingestion_id}/")
        else:
            remove_work(storage, ingestion)
        removed += 1
    return removed


def remove_work(storage: Storage, ingestion: Ingestion) -> None:
    """Removes the work of one that has ended for good; what was begun since it was read, by another try, stays."""
    folder = f"{ingestion.folder}work/"
    if ingestion.resumable:
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


def _over(storage: Storage, ledger: Ledger, spare_s: float) -> Iterator[list[tuple[str, Ingestion | None]]]:
    """One at a time: nobody tries it again between the look at its record and the removal of its work."""
    for ingestion_id, works in _old_ingestions(storage, (time.time() - spare_s) * 1000):
        ingestion = ledger.run(read_ingestion(ingestion_id))
        if ingestion is None or (ingestion.status.terminal and works):
            yield [(ingestion_id, ingestion)]


def _old_ingestions(storage: Storage, limit_ms: float) -> Iterator[tuple[str, bool]]:
    """Ids of ingestions of which something is old, and whether it is work."""
    ids: dict[str, bool] = {}
    for stored in storage.stored(ingestions.FOLDER):
        if stored.modified_ms <= limit_ms:
            _, ingestion_id, kind = stored.name.split("/")[:3]
            ids[ingestion_id] = ids.get(ingestion_id, False) or kind in {"work", "ids"}
    yield from ids.items()


SWEEP_EVERY_S = 600.0
SWEEP_AGAIN_S = 30.0
"""After a sweep that could not be finished."""


class Cleanup:
    """Sweeps at its first call; again `SWEEP_EVERY_S` after a sweep that succeeded, `SWEEP_AGAIN_S` after another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock()
        self._warned = False

    def __call__(self, context: StepContext) -> None:
        """Raises what `sweep` does. Where the storage is another Redis's, it says so once and deletes nothing."""
        if self._clock() < self._due:
            return
        pause_s = SWEEP_AGAIN_S
        try:
            if not self._may_sweep(context):
                return
            with ExitStack() as stack:  # each of them, also when another one raises
                for part in (sweep_datasets, sweep_ingestions, sweep_batches, sweep):
                    stack.callback(part, context.storage, context.ledger)
            pause_s = SWEEP_EVERY_S
        finally:  # counted from here: a sweep that fails may have taken longer than the pause
            self._due = self._clock() + pause_s

    def _may_sweep(self, context: StepContext) -> bool:
        ours = (
            is_ours(context.storage, context.ledger)
            if context.settings.adopt_storage is None
            else adopt(context.storage, context.ledger, context.settings.adopt_storage)
        )
        if not ours and not self._warned:
            _log.warning(NOT_OURS, id_of(context.storage))
        self._warned = not ours
        return ours

"""The sweep: deletes stored files that no record names any more, because it expired or was never made.

A storage belongs to one Redis: swept for another, it would lose everything. So nothing is for one that is not its own
(`tasks.ledger.identity`).
"""

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from tasks.errors import StorageUnavailable
from tasks.ledger.batch_operations import open_batches, read_batches
from tasks.ledger.batches import KINDS
from tasks.ledger.executor import Ledger
from tasks.ledger.file_operations import MAX_PAGE, read_files
from tasks.ledger.files import FOLDER, file_id_of
from tasks.ledger.identity import confirmed, is_ours
from tasks.ledger.storage import Storage

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
    old = (found.name for found in storage.stored(FOLDER) if found.modified_ms <= limit_ms)
    garbage = (_unnamed(awaited.without(names), ledger) for names in _in_pieces(old, MAX_PAGE))
    try:
        deleted = delete_all(storage, confirmed(storage, ledger, garbage))
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

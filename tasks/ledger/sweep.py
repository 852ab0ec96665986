"""The sweep: deletes stored files that no record names any more, because it expired or was never made.

A storage belongs to one Redis: swept for another, it would lose everything.
"""

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from tasks.ledger.executor import Ledger
from tasks.ledger.file_operations import MAX_PAGE, read_files
from tasks.ledger.files import FOLDER, file_id_of
from tasks.ledger.storage import Storage

SPARE_S = 86_400.0
"""What is younger is left alone: an upload, or an output whose record waits until Redis is back."""

_log = logging.getLogger(__name__)


def sweep(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Deletes what nothing refers to and what was last written to `spare_s` ago or earlier; the number of objects.

    Several may sweep at the same time. Parts of batches are not touched.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    limit_ms = (time.time() - spare_s) * 1000
    old = (found.name for found in storage.stored(FOLDER) if found.modified_ms <= limit_ms)
    deleted = storage.discard_unfinished(spare_s)
    for names in _in_pieces(old, MAX_PAGE):
        garbage = _unnamed(names, ledger)
        for name in garbage:
            storage.delete(name)
        deleted += len(garbage)
    if deleted:
        _log.info("deleted %d stored objects that nothing refers to", deleted)
    return deleted


def _unnamed(names: list[str], ledger: Ledger) -> list[str]:
    records = ledger.run(read_files([file_id_of(name) for name in names]))
    return [name for name, record in zip(names, records, strict=True) if record is None or record.stored != name]


def _in_pieces(names: Iterable[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while piece := list(islice(rest, size)):
        yield piece

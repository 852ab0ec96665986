"""What a worker that was taken for dead may have written for a batch after the batch's folder was removed."""

import time
from collections.abc import Iterator

from tasks.ledger import Ledger
from tasks.ledger.batch_operations import read_batch
from tasks.ledger.identity import confirmed
from tasks.ledger.storage import Storage
from tasks.ledger.sweep import SPARE_S, delete_all

_FOLDER = "batches"


def sweep_batches(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Removes the folders of ended or forgotten batches last written to `spare_s` ago or earlier; their number.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    old = set(_old(storage, (time.time() - spare_s) * 1000))
    over = ([f"{_FOLDER}/{batch_id}/"] for batch_id in old if _has_ended(ledger, batch_id))
    return delete_all(storage, confirmed(storage, ledger, over))


def _has_ended(ledger: Ledger, batch_id: str) -> bool:
    batch = ledger.run(read_batch(batch_id))
    return batch is None or batch.status.terminal


def _old(storage: Storage, limit_ms: float) -> Iterator[str]:
    for found in storage.stored(_FOLDER):
        if found.modified_ms <= limit_ms:
            yield found.name.split("/")[1]

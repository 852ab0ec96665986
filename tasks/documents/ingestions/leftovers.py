"""What is left in the storage of ingestions whose record has expired, or of workers that were taken for dead."""

import time
from collections.abc import Iterator

from tasks.ledger import Ledger
from tasks.ledger.identity import confirmed
from tasks.ledger.ingestion_operations import read_ingestion
from tasks.ledger.ingestions import FOLDER, Ingestion, IngestionStatus
from tasks.ledger.storage import Storage
from tasks.ledger.sweep import SPARE_S


def sweep_ingestions(storage: Storage, ledger: Ledger, *, spare_s: float = SPARE_S) -> int:
    """Removes what was last written to `spare_s` ago or earlier; the number of folders.

    That is all of ingestions that the ledger holds no more, and the work of those that have ended.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    removed = 0
    for ingestion_id, ingestion in confirmed(storage, ledger, _over(storage, ledger, spare_s)):
        if ingestion is None:
            storage.delete(f"{FOLDER}/{ingestion_id}/")
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
    found = {int(stored.name.removeprefix(folder).partition("/")[0]) for stored in storage.stored(folder)}
    for page in found:
        if page < ingestion.next_page:
            storage.delete(ingestion.page_folder(page))
    storage.delete(ingestion.ids_folder)


def _over(storage: Storage, ledger: Ledger, spare_s: float) -> Iterator[list[tuple[str, Ingestion | None]]]:
    """One at a time: nobody tries it again between the look at its record and the removal of its work."""
    for ingestion_id, works in _old(storage, (time.time() - spare_s) * 1000):
        ingestion = ledger.run(read_ingestion(ingestion_id))
        if ingestion is None or (ingestion.status.terminal and works):
            yield [(ingestion_id, ingestion)]


def _old(storage: Storage, limit_ms: float) -> Iterator[tuple[str, bool]]:
    """Ids of ingestions of which something is old, and whether it is work."""
    found: dict[str, bool] = {}
    for stored in storage.stored(FOLDER):
        if stored.modified_ms <= limit_ms:
            _, ingestion_id, kind = stored.name.split("/")[:3]
            found[ingestion_id] = found.get(ingestion_id, False) or kind in {"work", "ids"}
    yield from found.items()

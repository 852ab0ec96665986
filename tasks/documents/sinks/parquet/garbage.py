"""The sweep of datasets: deletes what no version names that anybody may still read."""

import logging
import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from tasks.errors import NotStored
from tasks.ledger.dataset_operations import read_dataset
from tasks.ledger.datasets import FOLDER, GRACE_S, Part, Pointer, catalog_version, read_catalog
from tasks.ledger.executor import Ledger
from tasks.ledger.storage import Storage, Stored

SPARE_S = 86_400.0
"""What no version names and is younger may be a load that is under way."""

_log = logging.getLogger(__name__)


def sweep_datasets(storage: Storage, ledger: Ledger, *, grace_s: float = GRACE_S, spare_s: float = SPARE_S) -> int:
    """Deletes parts replaced `grace_s` ago, catalogs, and garbage older than `spare_s`; the number of objects.

    A dataset that Redis does not know is left alone. Several may sweep at the same time.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not over; a later one does the rest.
    """
    deleted = 0
    # A thousand objects are a few hundred kilobytes here; a dataset of a million documents has some thousand.
    objects = sorted(storage.stored(FOLDER), key=lambda found: found.name)
    for _, of_folder in groupby(objects, key=lambda found: found.name.rpartition("/")[0]):
        for name in _garbage(list(of_folder), storage, ledger, grace_s, spare_s):
            storage.delete(name)
            deleted += 1
    if deleted:
        _log.info("deleted %d objects of datasets that nothing refers to", deleted)
    return deleted


def _garbage(objects: list[Stored], storage: Storage, ledger: Ledger, grace_s: float, spare_s: float) -> Iterator[str]:
    now_ms = time.time() * 1000
    present = _present(objects, storage, ledger)
    if present is None:
        return
    catalog = read_catalog(storage, present)
    live = {present.catalog, *_names(catalog.parts)}
    for_now = set(_names(gone.part for gone in catalog.retired if gone.at_ms > now_ms - grace_s * 1000))
    retired = set(_names(gone.part for gone in catalog.retired)) - for_now
    for found in objects:
        if found.name in live or found.name in for_now:
            continue
        is_catalog = catalog_version(found.name) is not None
        spared_s = 0 if found.name in retired else grace_s if is_catalog else spare_s
        if found.modified_ms <= now_ms - spared_s * 1000:
            yield found.name


def _present(objects: list[Stored], storage: Storage, ledger: Ledger) -> Pointer | None:
    """The present catalog of the dataset that these objects are of."""
    catalogs = [(version, found.name) for found in objects if (version := catalog_version(found.name)) is not None]
    if not catalogs:
        return None
    try:
        newest = read_catalog(storage, Pointer(*max(catalogs)))  # even one that never became the present one
    except NotStored:
        return None
    return ledger.run(read_dataset(newest.owner, newest.dataset))


def _names(parts: Iterable[Part]) -> Iterator[str]:
    for part in parts:
        yield part.receipts
        if part.stored:
            yield part.stored

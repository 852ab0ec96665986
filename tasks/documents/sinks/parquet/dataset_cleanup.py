"""The sweep of datasets: deletes objects that no version names any more, once no reader can still use them."""

import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tasks.errors import NotStored, StorageUnavailable
from tasks.ledger.executor import Ledger
from tasks.records.dataset_maps import is_map, map_name
from tasks.records.datasets import (
    CATALOGS,
    GRACE_S,
    PARTS,
    Catalog,
    DatasetPart,
    Version,
    catalog_version,
    delete_version,
)
from tasks.records.ingestion_operations import read_ingestion
from tasks.records.storage_identity import confirmed, is_ours
from tasks.storage.storage import Storage, Stored

SPARE_S = 86_400.0
"""A younger object that no version names may belong to a load that is under way."""
_FAILURES = 20
"""A sweep is given up after so many datasets that cannot be swept: each may have taken many seconds."""

_OLD_CATALOG = re.compile(r"/catalog-[^/]*\.json$")

_log = logging.getLogger(__name__)


@dataclass
class _DatasetObjects:
    """The objects of one dataset; `catalogs` in the order of their versions."""

    parts: list[Stored] = field(default_factory=list)
    catalogs: list[Stored] = field(default_factory=list)

    @property
    def of_first_version(self) -> bool:
        """Whether the first version of embedq made it, with catalogs beside the parts. They are not read any more."""
        return not self.catalogs and any(_OLD_CATALOG.search(part.name) for part in self.parts)


def sweep_datasets(storage: Storage, ledger: Ledger, *, grace_s: float = GRACE_S, spare_s: float = SPARE_S) -> int:
    """Deletes parts, maps and catalogs replaced `grace_s` ago, and objects older than `spare_s` that no version names.

    Returns the number of objects.

    A deleted dataset is removed whole after the grace. The dataset of a single ingestion is deleted when it is older
    than `spare_s` and the record of the ingestion is gone. Several sweeps may run at the same time. A dataset that
    cannot be read does not stop the others.

    Raises:
        StorageUnavailable, RedisUnavailable: the sweep is not complete; a later one does the rest.
    """
    if not is_ours(storage, ledger):
        return 0
    deleted, away = 0, list[StorageUnavailable]()
    for place, objects in sorted(_datasets(storage).items()):
        try:
            for name in _deletable(objects, _newest(storage, objects, ledger, spare_s), grace_s, spare_s):
                storage.delete(name)
                deleted += 1
        except NotStored:
            continue  # another process has moved or deleted it since it was listed
        except StorageUnavailable as error:
            away.append(error)
            if len(away) == _FAILURES:
                break
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("the newest catalog of %s cannot be read (%s): it is not swept", place, type(error).__name__)
    if deleted:
        _log.info("deleted %d objects of datasets that nothing refers to", deleted)
    if away:
        raise away[-1]
    return deleted


def _datasets(storage: Storage) -> dict[str, _DatasetObjects]:
    # A thousand objects are a few hundred kilobytes here; a dataset of a million documents has some thousand.
    datasets: dict[str, _DatasetObjects] = defaultdict(_DatasetObjects)
    # Parts first: a version that is made meanwhile names parts that were listed, and not the other way round.
    for part in storage.stored(PARTS):
        datasets[part.name.removeprefix(f"{PARTS}/").rpartition("/")[0]].parts.append(part)
    for catalog in storage.stored(CATALOGS):
        if catalog_version(catalog.name) is not None:
            datasets[catalog.name.removeprefix(f"{CATALOGS}/").rpartition("/")[0]].catalogs.append(catalog)
    for objects in datasets.values():
        objects.catalogs.sort(key=lambda catalog: catalog_version(catalog.name) or 0)
    return datasets


def _newest(storage: Storage, objects: _DatasetObjects, ledger: Ledger, spare_s: float) -> Catalog | None:
    if not objects.catalogs:
        return None
    newest = objects.catalogs[-1]
    catalog = Catalog.from_bytes(storage.read(newest.name))
    old = newest.modified_ms <= (time.time() - spare_s) * 1000  # a Redis that was put back does not know young ones
    if old and catalog.exists and catalog.anonymous and ledger.run(read_ingestion(catalog.dataset)) is None:
        # Nobody can name it any more: its ingestion has no record, and it was made by no other.
        for version in confirmed(storage, ledger, [[Version(newest, catalog)]]):
            delete_version(storage, version)  # this one or none; its objects go after the grace
    return catalog


def _deletable(objects: _DatasetObjects, catalog: Catalog | None, grace_s: float, spare_s: float) -> Iterator[str]:
    if objects.of_first_version:
        return  # its owner may want it, and it could not be made again
    now_ms = time.time() * 1000
    grace_ms, spare_ms = now_ms - grace_s * 1000, now_ms - spare_s * 1000
    live = set(_names(catalog.parts)) if catalog else set()
    if catalog and catalog.exists:
        live.add(map_name(catalog))
    retired = {name: gone.at_ms for gone in (catalog.retired if catalog else ()) for name in _names([gone.part])}
    left = 0
    for part in objects.parts:
        since_ms = retired.get(part.name, part.modified_ms)
        replaced = part.name in retired or is_map(part.name)
        if part.name not in live and since_ms <= (grace_ms if replaced else spare_ms):
            yield part.name
        else:
            left += 1
    # In the order of their versions: while one is there, no later one was ever deleted (`datasets.advance`).
    for old, newer in zip(objects.catalogs, objects.catalogs[1:], strict=False):
        if newer.modified_ms > grace_ms:
            return
        yield old.name
    if catalog and catalog.deleted and not left and objects.catalogs[-1].modified_ms <= grace_ms:
        yield objects.catalogs[-1].name


def _names(parts: Iterable[DatasetPart]) -> Iterator[str]:
    for part in parts:
        yield part.receipts
        if part.stored:
            yield part.stored

"""The sweep of datasets: deletes objects that a newer version has replaced, once no reader can still use them."""

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tasks.errors import NotStored, StorageUnavailable
from tasks.records.datasets import (
    CATALOGS,
    GRACE_S,
    PARTS,
    Catalog,
    DatasetPart,
    catalog_version,
)
from tasks.storage.storage import Storage, Stored

_FAILURES = 20
"""A sweep is given up after so many datasets that cannot be swept: each may have taken many seconds."""

_log = logging.getLogger(__name__)


@dataclass
class _DatasetObjects:
    """The objects of one dataset; `catalogs` in the order of their versions."""

    parts: list[Stored] = field(default_factory=list)
    catalogs: list[Stored] = field(default_factory=list)


def sweep_datasets(storage: Storage, *, grace_s: float = GRACE_S) -> int:
    """Deletes parts and catalogs that a newer version has replaced `grace_s` ago; the number of objects.

    A deleted dataset is removed whole after the grace. What no version has ever named is not touched: a load that is
    under way may have written it (`unnamed_parts`). Several sweeps may run at the same time. A dataset that cannot be
    read does not stop the others.

    Raises:
        StorageUnavailable: the sweep is not complete; a later one does the rest.
    """
    deleted, away = 0, list[StorageUnavailable]()
    for objects, catalog in _readable(storage):
        try:
            for name in _deletable(objects, catalog, grace_s):
                storage.delete(name)
                deleted += 1
        except StorageUnavailable as error:
            away.append(error)
            if len(away) == _FAILURES:
                break
    if deleted:
        _log.info("deleted %d objects of datasets that were replaced", deleted)
    if away:
        raise away[-1]
    return deleted


def unnamed_parts(storage: Storage) -> Iterator[Stored]:
    """Objects of datasets that no version names and none has replaced: what loads that died have left, or write now.

    Those of a dataset that cannot be read are left out. Raises `StorageUnavailable`.
    """
    for objects, catalog in _readable(storage):
        named = _live(catalog) | _retired(catalog).keys()
        yield from (part for part in objects.parts if part.name not in named)


def _readable(storage: Storage) -> Iterator[tuple[_DatasetObjects, Catalog | None]]:
    """All datasets with their newest catalogs, without those that cannot be read."""
    for place, objects in sorted(_datasets(storage).items()):
        try:
            newest = objects.catalogs[-1].name if objects.catalogs else None
            yield objects, Catalog.from_bytes(storage.read(newest)) if newest else None
        except NotStored:
            continue  # another process has moved or deleted it since it was listed
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("the newest catalog of %s cannot be read (%s): it is not swept", place, type(error).__name__)


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


def _live(catalog: Catalog | None) -> set[str]:
    return set(_names(catalog.parts)) if catalog else set()


def _retired(catalog: Catalog | None) -> dict[str, int]:
    return {name: gone.at_ms for gone in (catalog.retired if catalog else ()) for name in _names([gone.part])}


def _deletable(objects: _DatasetObjects, catalog: Catalog | None, grace_s: float) -> Iterator[str]:
    if catalog is None:
        return
    grace_ms = (time.time() - grace_s) * 1000
    live, retired, newest = _live(catalog), _retired(catalog), objects.catalogs[-1]
    left = 0
    for part in objects.parts:
        replaced_ms = retired.get(part.name)
        if catalog.deleted and part.modified_ms <= newest.modified_ms:  # what no version named goes with it
            replaced_ms = newest.modified_ms
        if part.name not in live and replaced_ms is not None and replaced_ms <= grace_ms:
            yield part.name
        else:
            left += 1
    # In the order of their versions: while one is there, no later one was ever deleted (`datasets.advance`).
    for old, newer in zip(objects.catalogs, objects.catalogs[1:], strict=False):
        if newer.modified_ms > grace_ms:
            return
        yield old.name
    if catalog.deleted and not left and newest.modified_ms <= grace_ms:
        yield newest.name


def _names(parts: Iterable[DatasetPart]) -> Iterator[str]:
    for part in parts:
        yield part.receipts
        if part.stored:
            yield part.stored

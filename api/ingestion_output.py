"""The Parquet parts that an ingestion has made, or that its dataset has by now."""

from hashlib import sha256
from typing import Any

from api.services import Services
from tasks.errors import InvalidValue, NotStored
from tasks.ledger.dataset_operations import move_dataset, read_dataset
from tasks.ledger.datasets import Catalog, Part, newest_catalog, read_catalog
from tasks.ledger.ingestions import Ingestion

_ATTEMPTS = 3
_TAG_CHARS = 32


def dataset_of(found: Ingestion) -> str:
    """The name of its dataset.

    Raises:
        InvalidValue: its sink is none.
    """
    sink = found.spec["sink"]
    if sink["type"] != "parquet":
        raise InvalidValue(f"The vectors of this ingestion are in the table {sink.get('table')} of its sink.")
    return str(sink.get("dataset") or found.id)


async def read_output(services: Services, found: Ingestion) -> Catalog:
    """The dataset as it is now: one version, whole; one without parts before anything was loaded.

    Raises:
        InvalidValue: the sink of this ingestion is none.
        StorageUnavailable, RedisUnavailable: no answer.
    """
    dataset = dataset_of(found)
    for _ in range(_ATTEMPTS):
        pointer = await services.ledger.run(read_dataset(found.owner, dataset))
        storage = await services.storage.open()
        if pointer is None:  # Redis may have lost it; the storage knows the newest that is whole
            newest = await services.storage.run(newest_catalog, storage, found.owner, dataset)
            if newest is None:
                break
            await services.ledger.run(move_dataset(found.owner, dataset, None, newest[0]))
            continue  # another process may have been first
        try:
            return await services.storage.run(read_catalog, storage, pointer)
        except NotStored:
            continue  # it has moved on in between
    return Catalog(found.owner, dataset)


def output_json(found: Ingestion, catalog: Catalog) -> dict[str, Any]:
    """The list of parts."""
    parts = catalog.listed
    return {
        "object": "list",
        "dataset": catalog.dataset,
        "version": catalog.version,
        "dimension": catalog.dimension or None,
        "rows": sum(part.rows for part in parts),
        "data": [
            {
                "object": "ingestion.part",
                "name": part.name,
                "rows": part.rows,
                "documents": part.documents,
                "bytes": part.size_bytes,
                "etag": part_tag(part),
                "url": f"/v1/ingestions/{found.id}/output/{part.name}",
            }
            for part in parts
        ],
    }


def part_tag(part: Part) -> str:
    """Never the same for other bytes: stored names are never used twice."""
    return sha256(f"{part.stored} {part.size_bytes}".encode()).hexdigest()[:_TAG_CHARS]

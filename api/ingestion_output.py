"""The Parquet parts that an ingestion has made, or that its dataset has by now."""

from hashlib import sha256
from typing import Any

from api.services import Services
from tasks.errors import InvalidValue
from tasks.ledger.datasets import Catalog, Part, present
from tasks.ledger.ingestions import Ingestion

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
    """The dataset as it is now: one version, whole; one without parts before anything was loaded, or once deleted.

    Raises:
        InvalidValue: the sink of this ingestion is none.
        StorageUnavailable: no answer.
    """
    storage = await services.storage.open()
    return (await services.storage.run(present, storage, found.owner, dataset_of(found))).catalog


def output_json(found: Ingestion, catalog: Catalog) -> dict[str, Any]:
    """The list of parts."""
    parts = catalog.listed
    return {
        "object": "list",
        "dataset": catalog.dataset,
        "dataset_id": catalog.id if catalog.exists else None,
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

"""Datasets: what ingestions have loaded into Parquet files, under names of the caller's own."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.document.answers import Dataset, DatasetList, DeletedDataset
from api.document.openapi import paging
from api.request.paging import DEFAULT_LIMIT, MAX_LIMIT, list_json, read_limit
from api.server.direct import direct_router
from api.services import Services
from tasks.errors import DatasetUnknown, InvalidValue
from tasks.records import datasets
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage

router = direct_router(tag="datasets", prefix="/v1/datasets")

_JSON = "application/json"
_NO_STORE = {"cache-control": "no-store"}
_PAGE = {
    "parameters": [
        paging("after", {"type": "string"}, "last_id of the page before."),
        paging(
            "limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}, "Of one page."
        ),
    ]
}


@router.get("", responses={200: {"model": DatasetList}}, openapi_extra=_PAGE)
@router.get("/", include_in_schema=False)
async def list_own(request: Request) -> Response:
    """The caller's datasets."""
    services = Services.of(request)
    owner = services.owner(request)
    after = request.query_params.get("after") or None
    if after is not None and not datasets.is_dataset_name(after):
        raise InvalidValue("after must be the last_id of a page before.", param="after")
    limit = read_limit(request.query_params)
    storage = await services.storage.open()
    found = await services.storage.run(_some, storage, owner, after, limit + 1)
    page = [_dataset(catalog) for catalog in found[:limit]]
    return _answer(list_json(page, more=len(found) > limit, key="name"))


@router.get("/{name}", responses={200: {"model": Dataset}})
async def read(request: Request, name: str) -> Response:
    """A dataset as it is now."""
    services = Services.of(request)
    owner = services.owner(request)
    storage = await services.storage.open()
    if not datasets.is_dataset_name(name):
        raise _unknown()
    catalog = (await services.storage.run(datasets.present, storage, owner, name)).catalog
    if not catalog.exists:
        raise _unknown()
    return _answer(_dataset(catalog))


@router.delete("/{name}", responses={200: {"model": DeletedDataset}})
async def delete(request: Request, name: str) -> Response:
    """Deletes a dataset for good, with all its vectors."""
    services = Services.of(request)
    owner = services.owner(request)
    storage = await services.storage.open()
    if not datasets.is_dataset_name(name):
        raise _unknown()
    if not await services.storage.run(datasets.delete_dataset, storage, owner, name):
        raise _unknown()
    return _answer({"name": name, "object": "dataset", "deleted": True})


def _some(storage: Storage, owner: str, after: str | None, number: int) -> Sequence[Catalog]:
    return list(islice(datasets.datasets_of(storage, owner, after), number))


def _unknown() -> DatasetUnknown:
    return DatasetUnknown("You have no dataset of this name. GET /v1/datasets lists those there are.", param="name")


def _dataset(catalog: Catalog) -> dict[str, Any]:
    return {
        "id": catalog.id,
        "object": "dataset",
        "name": catalog.dataset,
        "version": catalog.version,
        "created_at": catalog.created_ms // 1000,
        "updated_at": catalog.written_ms // 1000,
        "vectors": catalog.vectors or None,
        "dimension": catalog.dimension or None,
        "rows": sum(part.rows for part in catalog.parts),
        "documents": sum(part.documents for part in catalog.parts),
        "bytes": sum(part.size_bytes for part in catalog.parts),
        "of_one_ingestion": catalog.anonymous,
    }


def _answer(body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), headers=_NO_STORE, media_type=_JSON)

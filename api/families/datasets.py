"""Datasets: what ingestions have loaded into Parquet files, under names of the caller's own."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer
from api.answer.json_response import NO_STORE, ListOf, json_response, list_json
from api.async_datasets import dataset_unknown
from api.families.route import INGESTION_MAKING, INGESTION_READING, Errors, Family, page_after, page_limit
from api.parts import Services
from api.request.paging import read_limit
from tasks import errors
from tasks.errors import InvalidValue
from tasks.records import datasets
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage


class Dataset(BaseModel):
    """What ingestions have loaded into Parquet files under one name."""

    id: str = Field(description="Of this dataset: one made later under the same name has another.")
    object: Literal["dataset"]
    name: str = Field(examples=["handbook"])
    version: int
    created_at: int
    updated_at: int
    vectors: str | None = Field(description="The model, its revision and what else makes vectors comparable.")
    dimension: int | None
    rows: int
    documents: int
    bytes: int
    of_one_ingestion: bool = Field(description="It has no name of its own and goes with its ingestion's record.")


class DatasetList(ListOf[Dataset]):
    """A page of datasets."""

    last_id: str | None = Field(description="Value of `after` for the next page: a name.")


class DeletedDataset(BaseModel):
    """Confirms that a dataset is deleted."""

    name: str
    object: Literal["dataset"]
    deleted: Literal[True]


router = Family("datasets")

_DATASET: Errors = (errors.DatasetUnknown, errors.StorageUnavailable)


@router.describe(
    "GET",
    "/v1/datasets",
    Answer(200, DatasetList),
    scopes=INGESTION_READING,
    errors=(errors.RequestError, errors.StorageUnavailable),
    reads=(page_after("last_id of the page before."), page_limit("Of one page.")),
    slash=True,
)
async def list_own(request: Request) -> Response:
    """Lists the caller's datasets of Parquet files."""
    services = Services.from_request(request)
    owner = services.owner(request)
    after = request.query_params.get("after") or None
    if after is not None and not datasets.is_dataset_name(after):
        raise InvalidValue("after must be the last_id of a page before.", param="after")
    limit = read_limit(request.query_params)
    storage = await services.storage.open()
    catalogs = await services.storage.run(_some, storage, owner, after, limit + 1)
    page = [_dataset(catalog) for catalog in catalogs[:limit]]
    return json_response(list_json(page, more=len(catalogs) > limit, key="name"), NO_STORE)


@router.describe("GET", "/v1/datasets/{name}", Answer(200, Dataset), scopes=INGESTION_READING, errors=_DATASET)
async def read(request: Request, name: str) -> Response:
    """Returns a dataset as it is now."""
    services = Services.from_request(request)
    catalog = (await services.datasets.present(services.owner(request), name)).catalog
    return json_response(_dataset(catalog), NO_STORE)


@router.describe(
    "DELETE",
    "/v1/datasets/{name}",
    Answer(200, DeletedDataset),
    scopes=INGESTION_MAKING,
    errors=(*_DATASET, errors.DiskFull),
)
async def delete(request: Request, name: str) -> Response:
    """Deletes a dataset for good, with all its vectors."""
    services = Services.from_request(request)
    owner = services.owner(request)
    storage = await services.storage.open()
    if not datasets.is_dataset_name(name) or not await services.storage.run(
        datasets.delete_dataset, storage, owner, name
    ):
        raise dataset_unknown()
    return json_response({"name": name, "object": "dataset", "deleted": True}, NO_STORE)


def _some(storage: Storage, owner: str, after: str | None, number: int) -> Sequence[Catalog]:
    return list(islice(datasets.datasets_of(storage, owner, after), number))


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
        "rows": catalog.rows,
        "documents": sum(part.documents for part in catalog.parts),
        "bytes": sum(part.size_bytes for part in catalog.parts),
        "of_one_ingestion": catalog.anonymous,
    }

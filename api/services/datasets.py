"""Datasets of Parquet files: list, read, delete, search, and pages of what they hold."""

import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from api.async_datasets import AsyncDatasets, dataset_unknown
from api.async_storage import AsyncStorage
from api.error_responses import TextFailed
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.datasets import Chunk, Dataset, Document, ScoredChunk, ScoredChunks, SearchBody
from api.served_models import ServedModels
from api.waiting.wait_for_vectors import SynchronousCalls
from tasks.errors import Invalid
from tasks.records import datasets
from tasks.records.api_keys import Key
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage

if TYPE_CHECKING:
    from tasks.search.contents import Contents

Vector: TypeAlias = npt.NDArray[np.floating]


class DatasetService:
    """The datasets of this service.

    Args:
        datasets: reads what they hold.
        storage: where they are.
        models: that are served.
        calls: wait for the vector of a text.
        max_wait_s: for that vector.
    """

    def __init__(
        self,
        datasets: AsyncDatasets,
        storage: AsyncStorage,
        models: ServedModels,
        calls: SynchronousCalls,
        max_wait_s: float,
    ) -> None:
        self._datasets = datasets
        self._storage = storage
        self._models = models
        self._calls = calls
        self._max_wait_s = max_wait_s

    async def list(self, key: Key, page: PagePlace) -> Page[Dataset]:
        """A page of the caller's datasets. Raises `Invalid`, and `StorageUnavailable` where it cannot be known."""
        if page.after is not None and not datasets.is_dataset_name(page.after):
            raise Invalid("invalid_value", "after must be the last_id of a page before.", param="after")
        catalogs = await self._storage.run(_some, key.owner, page.after, page.limit + 1)
        listed = [Dataset.model_validate(catalog) for catalog in catalogs[: page.limit]]
        return Page[Dataset].of(listed, more=len(catalogs) > page.limit, name="name")

    async def read(self, key: Key, name: str) -> Dataset:
        """The dataset as it is now; raises `NotFound` and `StorageUnavailable`."""
        return Dataset.model_validate(await self._datasets.present(key.owner, name))

    async def delete(self, key: Key, name: str) -> None:
        """Deletes a dataset for good, with all its vectors.

        Raises:
            NotFound: there is none.
            StorageUnavailable, DiskFull: it may be there still.
        """
        known = datasets.is_dataset_name(name)
        if not known or not await self._storage.run(datasets.delete_dataset, key.owner, name):
            raise dataset_unknown()

    async def documents(self, key: Key, name: str, page: PagePlace) -> Page[Document]:
        """A page of those that have chunks. Raises `Invalid`, and as `AsyncDatasets.read`."""

        def listed(contents: "Contents") -> Page[Document]:
            found = contents.documents(page.after, page.limit)
            documents = [Document.of(document.chunks, document.row) for document in found.items]
            return Page[Document].of(documents, more=found.more, until=str(found.until or "") or None)

        return await self._datasets.read(key.owner, name, listed)

    async def chunks(self, key: Key, name: str, page: PagePlace, document_id: str | None) -> Page[Chunk]:
        """A page of chunks, of one document or of all. Raises as `documents`."""

        def listed(contents: "Contents") -> Page[Chunk]:
            found = contents.chunks(document_id, page.after, page.limit)
            data, until = [Chunk.model_validate(row) for row in found.items], str(found.until or "") or None
            return Page[Chunk](data=data, first_id=None, last_id=until, has_more=found.more)

        return await self._datasets.read(key.owner, name, listed)

    async def search(self, key: Key, name: str, body: SearchBody) -> ScoredChunks:
        """Those nearest to a text or a vector, by comparing it with all of them.

        Raises:
            RequestError: the text, the vector or the model does not fit.
            TextFailed, WaitTimeout: the text has no vector, or not in time.
            EmbedqError: as `AsyncDatasets.read`.
        """
        if (body.query is None) == (body.vector is None):
            raise Invalid(
                "missing_required_parameter", "Send either query, a text, or vector, its numbers.", param="query"
            )
        if body.vector is None:
            vector = await self._encoded(key, name, body)
        else:
            vector = np.array(body.vector, np.float64)
        began = time.perf_counter()

        def found(contents: "Contents") -> ScoredChunks:
            near = [] if vector is None else _nearest(contents, vector, body)
            catalog, took_ms = contents.catalog, round((time.perf_counter() - began) * 1000, 1)
            return ScoredChunks(
                data=near, dataset=catalog.dataset, version=catalog.version, rows=catalog.rows, took_ms=took_ms
            )

        return await self._datasets.read(key.owner, name, found)

    async def _encoded(self, key: Key, name: str, body: SearchBody) -> Vector | None:
        """The vector of `query` by the model of the dataset; None where the dataset has no chunks to compare with."""
        catalog, made_by = await self._datasets.read(
            key.owner, name, lambda contents: (contents.catalog, contents.model())
        )
        if made_by is None:
            return None
        served = self._models.served(body.model or made_by)
        entry = served.model
        if entry is not None and not catalog.vectors.startswith(entry.made_by):
            raise Invalid(
                "dataset_model_mismatch",
                f"The dataset holds vectors of {catalog.vectors}, and {served.name} is {entry.made_by}. Name the model "
                "that made them, send a vector of that model, or load the documents again into another dataset.",
                param="model",
            )
        dimensions = catalog.dimension if entry and catalog.dimension < entry.dimension else None
        try:
            return await self._calls.embed_query(
                key, body.query or "", model=served.name, dimensions=dimensions, wait_s=self._max_wait_s
            )
        except TextFailed as error:
            error.param, error.detail = "query", error.detail.replace("input[0]", "query", 1)
            raise


def _some(storage: Storage, owner: str, after: str | None, number: int) -> Sequence[Catalog]:
    return list(islice(datasets.datasets_of(storage, owner, after), number))


def _nearest(contents: "Contents", vector: Vector, body: SearchBody) -> list[ScoredChunk]:
    dimension = contents.catalog.dimension
    if dimension and len(vector) != dimension:
        raise Invalid(
            "invalid_value",
            f"vector has {len(vector):,} numbers; the vectors of this dataset have {dimension:,}.",
            param="vector",
        )
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        raise Invalid("invalid_value", "The vector has no direction: its length is 0 or not finite.", param="vector")
    rows = contents.nearest(vector, body.limit, body.filter)
    return [ScoredChunk.model_validate({**row.fields, "score": round(row.score, 6)}) for row in rows]

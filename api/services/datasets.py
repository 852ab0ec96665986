"""Datasets: list, read, delete, search, and pages of what they hold."""

import re
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from api.async_datasets import AsyncDatasets, Stopping, dataset_unknown
from api.error_responses import TextFailed
from api.schemas.answer_parts import Page, PagePlace
from api.schemas.datasets import Chunk, Dataset, Document, ScoredChunk, ScoredChunks, SearchBody
from api.served_models import ServedModels
from api.waiting.wait_for_vectors import SynchronousCalls
from tasks.datasets.contents import Contents, DatasetGone, DatasetHead, Found
from tasks.datasets.hybrid_search import hybrid
from tasks.datasets.names import TABLE, is_dataset_name
from tasks.datasets.places import Datasets, open_table
from tasks.errors import Invalid
from tasks.records.api_keys import Key
from worker_config.settings import Settings

T = TypeVar("T")
Vector: TypeAlias = npt.NDArray[np.floating]

_MAX_DIGITS = 18


class DatasetService:
    """The datasets of this service. A name is that of a dataset, or `connection:table` of PostgreSQL.

    Args:
        datasets: reads what they hold.
        models: that are served.
        calls: wait for the vector of a text.
        settings: of this server.
    """

    def __init__(
        self, datasets: AsyncDatasets, models: ServedModels, calls: SynchronousCalls, settings: Settings
    ) -> None:
        self._datasets = datasets
        self._models = models
        self._calls = calls
        self._settings = settings

    async def list(self, key: Key, page: PagePlace) -> Page[Dataset]:
        """A page of the caller's datasets. Raises `Invalid`, and `SinkUnavailable` where it cannot be known."""
        after = page.after or ""
        if after and not is_dataset_name(after):
            raise Invalid("invalid_value", "after must be the last_id of a page before.", param="after")

        def some(datasets: Datasets) -> tuple[list[Dataset], bool]:
            names = [name for name in datasets.names(key.owner) if name > after]
            heads = [_head(datasets, key.owner, name) for name in names[: page.limit]]
            return [Dataset.model_validate(head) for head in heads if head], len(names) > page.limit

        listed, more = await self._datasets.run(some)
        return Page[Dataset].of(listed, more=more, name="name")

    async def read(self, key: Key, name: str) -> Dataset:
        """The dataset as it is now; raises as `AsyncDatasets.read`."""
        return Dataset.model_validate(await self._read(key, name, lambda contents, _: contents.head()))

    async def delete(self, key: Key, name: str) -> None:
        """Deletes a dataset for good, with all its vectors.

        Raises:
            NotFound: there is none.
            SinkUnavailable: it may be there still.
        """
        if not is_dataset_name(name) or not await self._datasets.delete(key.owner, name):
            raise dataset_unknown()

    async def documents(self, key: Key, name: str, page: PagePlace) -> Page[Document]:
        """A page of those that have chunks. Raises `Invalid`, and as `AsyncDatasets.read`."""
        after = _number(page)

        def listed(contents: Contents, _: Stopping) -> Page[Document]:
            found = contents.documents(after, page.limit)
            until = str(found.items[-1].number) if found.items else None
            return Page[Document].of([Document.of(item) for item in found.items], more=found.more, until=until)

        return await self._read(key, name, listed)

    async def chunks(self, key: Key, name: str, page: PagePlace, document_id: str | None) -> Page[Chunk]:
        """A page of chunks, of one document or of all. Raises as `documents`."""
        after = _number(page)

        def listed(contents: Contents, _: Stopping) -> Page[Chunk]:
            found = contents.chunks(after, page.limit, document_id)
            until = str(found.items[-1].number) if found.items else None
            data = [Chunk.model_validate(item) for item in found.items]
            return Page[Chunk](data=data, first_id=None, last_id=until, has_more=found.more)

        return await self._read(key, name, listed)

    async def search(self, key: Key, name: str, body: SearchBody) -> ScoredChunks:
        """Those nearest to a text or a vector, by comparing it with all of them.

        Raises:
            RequestError: the text, the vector or the model does not fit.
            TextFailed, WaitTimeout: the text has no vector, or not in time.
            EmbedqError: as `AsyncDatasets.read`.
        """
        _require_query(body)
        vector: Vector | None = None
        if body.vector is not None:
            vector = np.array(body.vector, np.float64)
        elif body.mode != "text":
            vector = await self._encoded(key, name, body)
        began = time.perf_counter()

        def found(contents: Contents, stopping: Stopping) -> ScoredChunks:
            head = contents.head()
            near = _found(contents, head, vector, body, stopping)
            took_ms = round((time.perf_counter() - began) * 1000, 1)
            return ScoredChunks(
                data=[_scored(each) for each in near],
                dataset=head.name,
                version=head.version,
                rows=head.chunks,
                took_ms=took_ms,
            )

        return await self._read(key, name, found)

    async def _read(self, key: Key, name: str, function: Callable[[Contents, Stopping], T]) -> T:
        return await self._datasets.read(key.owner, self._opener(key, name), function)

    def _opener(self, key: Key, name: str) -> Callable[[Datasets], Contents]:
        connection, colon, table = name.partition(":")
        if not colon and is_dataset_name(name):
            return lambda datasets: datasets.contents(key.owner, name)
        if not (colon and re.fullmatch(TABLE, table)) or connection not in dict(self._settings.sinks):
            raise dataset_unknown()
        if not key.limits.may_load_into(connection, table):
            raise dataset_unknown()
        shares = key.limits.shares_table(connection, table)
        return lambda _: open_table(connection, table, self._settings, owner=key.owner, shares_table=shares)

    async def _encoded(self, key: Key, name: str, body: SearchBody) -> Vector | None:
        """The vector of `query` by the model of the dataset; None where the dataset has no chunks to compare with."""
        head = await self._read(key, name, lambda contents, _: contents.head())
        if not head.model:
            return None
        served = self._models.served(body.model or head.model)
        entry = served.model
        if entry is not None and not head.vectors.startswith(entry.made_by):
            raise Invalid(
                "dataset_model_mismatch",
                f"The dataset holds vectors of {head.vectors}, and {served.name} is {entry.made_by}. Name the model "
                "that made them, send a vector of that model, or load the documents again into another dataset.",
                param="model",
            )
        dimensions = head.dimension if entry and head.dimension < entry.dimension else None
        try:
            return await self._calls.embed_query(
                key, body.query or "", model=served.name, dimensions=dimensions, wait_s=self._settings.max_wait_s
            )
        except TextFailed as error:
            error.param, error.detail = "query", error.detail.replace("input[0]", "query", 1)
            raise


def _head(datasets: Datasets, owner: str, name: str) -> DatasetHead | None:
    with closing(datasets.contents(owner, name)) as contents:
        try:
            return contents.head()
        except (DatasetGone, Invalid):  # a damaged one is told where it is named
            return None


def _scored(found: Found) -> ScoredChunk:
    return ScoredChunk.model_validate(found.chunk._asdict() | {"score": float(f"{found.score:.6g}")})


def _number(page: PagePlace) -> int:
    if page.after is None:
        return -1
    if not page.after.isascii() or not page.after.isdigit() or len(page.after) > _MAX_DIGITS:
        raise Invalid("invalid_value", "after must be the last_id of a page before.", param="after")
    return int(page.after)


def _require_query(body: SearchBody) -> None:
    both = body.mode == "hybrid" and body.query is not None
    if body.mode != "vector" and body.query is None:
        raise Invalid("missing_required_parameter", f"The mode {body.mode} needs query, a text.", param="query")
    if body.mode == "text" and body.vector is not None:
        raise Invalid("invalid_value", "The mode text takes no vector; leave it out.", param="vector")
    if (body.query is None) == (body.vector is None) and not both:
        raise Invalid("missing_required_parameter", "Send either query, a text, or vector, its numbers.", param="query")


def _found(
    contents: Contents, head: DatasetHead, vector: Vector | None, body: SearchBody, stopping: Stopping
) -> list[Found]:
    if body.mode == "text":
        return contents.words(body.query or "", body.limit, body.filter, stopping)
    if vector is None:
        return []
    _require_fits(vector, head.dimension)
    try:
        if body.mode == "hybrid":
            return hybrid(contents, body.query or "", vector, body.limit, fields=body.filter, stopping=stopping)
        return contents.nearest(vector, body.limit, body.filter, stopping)
    except ValueError as error:  # the dataset was made anew with other vectors, since its head was read
        raise Invalid("invalid_value", f"{error}".capitalize() + ".", param="vector") from None


def _require_fits(vector: Vector, dimension: int) -> None:
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

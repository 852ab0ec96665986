"""What a dataset holds: exact search, pages of its documents and chunks."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import TEXT, Answer, json_body, query
from api.answer.json_response import JSON, NO_STORE, ListOf
from api.error_responses import ItemFailed, ItemRefused
from api.families.route import JSON_BODY, READING, Errors, Family, page_after, page_limit
from api.parts import Services
from api.request.body import parse_object
from api.request.memory_budget import LargeResponse
from api.request.offload import offload_in_turn
from api.request.paging import read_limit
from api.waiting.synchronous import encode_now
from tasks import errors
from tasks.errors import DatasetModelMismatch, InvalidType, InvalidValue, MissingParameter
from tasks.records.datasets import Catalog
from tasks.wire.validation import MAX_METADATA_PAIRS, validated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tasks.search.pages import ContentPage
    from tasks.search.parts import PartReader

MAX_HITS = 100
_MAX_DIMENSION = 65_536
_SHOWN_CHARS = 64
_EXAMPLE: dict[str, Any] = {"query": "how do I get a refund?", "limit": 3, "filter": {"team": "sales"}}


class SearchBody(BaseModel):
    """Body of `POST /v1/datasets/{name}/search`. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    query: Annotated[str, StringConstraints(min_length=1)] | None = Field(None, description="A text; or `vector`.")
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        None, description="That encodes `query`; by default the model whose vectors the dataset holds."
    )
    vector: list[Annotated[float, Field(allow_inf_nan=False)]] | None = Field(
        None,
        min_length=1,
        max_length=_MAX_DIMENSION,
        description="Of any length but 0, with as many numbers as the vectors of the dataset.",
    )
    limit: int = Field(10, ge=1, le=MAX_HITS, description="Of the chunks in the answer.")
    filter: dict[Annotated[str, StringConstraints(min_length=1, max_length=200)], str | int | float | bool] | None = (
        Field(
            None,
            max_length=MAX_METADATA_PAIRS,
            description="Fields of the metadata and the value of each; `document_id` stands for the document.",
        )
    )


class Chunk(BaseModel):
    """A slice of a document."""

    document_id: str
    chunk: int = Field(description="Its number in the document, from 0.")
    text: str
    start: int | None = Field(description="Its first character in the parsed document.")
    end: int | None
    headings: list[str] = Field(description="Above it, the outermost first.")
    page: int | None
    metadata: dict[str, Any] = Field(description="Of the document.")


class ScoredChunk(Chunk):
    """A slice of a document that is near to a query."""

    score: float = Field(description="Cosine of its vector and that of the query.")


class ScoredChunks(BaseModel):
    """The nearest chunks, best first."""

    object: Literal["list"]
    data: list[ScoredChunk]
    dataset: str
    version: int = Field(description="Of the dataset, which was searched as a whole.")
    rows: int = Field(description="Chunks in the dataset.")
    took_ms: float = Field(description="Of the search, without the time to encode `query`.")


class ChunkList(ListOf[Chunk]):
    """A page of chunks."""

    last_id: str | None = Field(description="Value of `after` for the next page: a place in the dataset.")


class Document(BaseModel):
    """A document that has chunks in a dataset."""

    id: str
    chunks: int
    source_uri: str | None
    title: str | None = Field(
        description="The field `title` of its metadata, or the first heading above its beginning."
    )
    metadata: dict[str, Any]


class DatasetDocuments(ListOf[Document]):
    """A page of documents."""

    last_id: str | None = Field(description="Value of `after` for the next page: a place in the dataset.")


router = Family("datasets")

_READING: Errors = (errors.DatasetUnknown, errors.StorageUnavailable, errors.NotStored, errors.NotReady)


@router.describe(
    "POST",
    "/v1/datasets/{name}/search",
    Answer(200, ScoredChunks),
    scopes=READING,
    errors=(
        *JSON_BODY,
        *_READING,
        errors.DatasetModelMismatch,
        errors.ModelNotFound,
        errors.BacklogFull,
        errors.KeyLimitReached,
        errors.AboveKeyLimit,
        errors.StorageFull,
        errors.EncodingFailed,
        ItemRefused,
        errors.WaitTimeout,
    ),
    body=json_body(SearchBody),
)
async def search(request: Request, name: str) -> Response:
    """Returns the chunks of a dataset that are nearest to a text or a vector, by comparing it with all of them."""
    services = Services.from_request(request)
    owner = services.owner(request)
    await services.door.check(owner)
    content = await services.bodies.read(request)
    body = await offload_in_turn(len(content), _search_body, content)
    if (body.query is None) == (body.vector is None):
        raise MissingParameter("Send either query, a text, or vector, its numbers.", param="query")
    given = None if body.vector is None else np.array(body.vector, np.float64)
    vector = await _encoded(services, request, owner, name, body) if given is None else given
    began = time.perf_counter()

    def found(reader: "PartReader", catalog: Catalog) -> bytes:
        answer = {
            "object": "list",
            "data": [] if vector is None else _nearest(reader, catalog, vector, body),
            "dataset": catalog.dataset,
            "version": catalog.version,
            "rows": catalog.rows,
            "took_ms": round((time.perf_counter() - began) * 1000, 1),
        }
        return orjson.dumps(answer)

    return large_json(services, request, await services.datasets.search(request, owner, name, found))


def _search_body(content: bytes) -> SearchBody:
    return validated(SearchBody, parse_object(content), {"vector": _numbers, "filter": _scalars})


def _numbers(value: object) -> object:
    # pydantic would list every fault of a vector of millions.
    if isinstance(value, list):
        if len(value) > _MAX_DIMENSION:
            raise InvalidValue(
                f"vector has {len(value):,} numbers; at most {_MAX_DIMENSION:,} are taken.", param="vector"
            )
        if any(type(number) not in {int, float} for number in value):
            raise InvalidType("vector must be a list of numbers.", param="vector")
    return value


def _scalars(value: object) -> object:
    # pydantic would name each type that a value could have had.
    for name, wanted in value.items() if isinstance(value, dict) else ():
        if not isinstance(wanted, str | int | float | bool):
            param = f"filter.{name[:_SHOWN_CHARS]}"
            raise InvalidType(f"{param} must be a text, a number or a boolean.", param=param)
    return value


_PAGE = (page_after("last_id of the page before."), page_limit("Of one page."))
_LISTING: Errors = (errors.RequestError, errors.Overloaded, *_READING)


@router.describe(
    "GET",
    "/v1/datasets/{name}/documents",
    Answer(200, DatasetDocuments),
    scopes=READING,
    errors=_LISTING,
    reads=_PAGE,
    slash=True,
)
async def list_documents(request: Request, name: str) -> Response:
    """Lists the documents of a dataset that have chunks, in the order of the dataset."""
    services = Services.from_request(request)
    owner = services.owner(request)
    after, limit = request.query_params.get("after"), read_limit(request.query_params)

    def listed(reader: "PartReader", catalog: Catalog) -> bytes:
        from tasks.search.pages import Place, page_of_documents  # noqa: PLC0415 - it needs pyarrow

        page = page_of_documents(reader, catalog, Place.from_text(after) if after else None, limit)
        return _listed([_document(document.chunks, document.row) for document in page.items], page)

    return large_json(services, request, await services.datasets.read(request, owner, name, listed))


@router.describe(
    "GET",
    "/v1/datasets/{name}/chunks",
    Answer(200, ChunkList),
    scopes=READING,
    errors=_LISTING,
    reads=(query("document_id", TEXT, "Of one document alone.", empty_is_absent=True), *_PAGE),
    slash=True,
)
async def list_chunks(request: Request, name: str) -> Response:
    """Lists the chunks of a dataset, or of one of its documents, in the order of documents and of chunks in them."""
    services = Services.from_request(request)
    owner = services.owner(request)
    after, limit = request.query_params.get("after"), read_limit(request.query_params)
    document_id = request.query_params.get("document_id")

    def listed(reader: "PartReader", catalog: Catalog) -> bytes:
        from tasks.search.pages import Place, chunks_of_document, page_of_chunks  # noqa: PLC0415 - it needs pyarrow

        place = Place.from_text(after) if after else None
        if document_id:
            page = chunks_of_document(reader, catalog, document_id, place, limit)
        else:
            page = page_of_chunks(reader, catalog, place, limit)
        return _listed([_chunk(row) for row in page.items], page)

    return large_json(services, request, await services.datasets.read(request, owner, name, listed))


def _listed(data: list[dict[str, Any]], page: "ContentPage[Any]") -> bytes:
    until = str(page.until) if page.until else None
    first = data[0].get("id") if data else None
    return orjson.dumps({"object": "list", "data": data, "first_id": first, "last_id": until, "has_more": page.more})


def _document(chunks: int, row: "Mapping[str, Any]") -> dict[str, Any]:
    title = orjson.loads(row["metadata"]).get("title")
    return {
        "id": row["doc_id"],
        "chunks": chunks,
        "source_uri": row["source_uri"] or None,
        "title": title if title and isinstance(title, str) else next(iter(row["headings"]), None),
        "metadata": orjson.Fragment(row["metadata"]),
    }


async def _encoded(
    services: Services, request: Request, owner: str, name: str, body: SearchBody
) -> npt.NDArray[np.floating] | None:
    """The vector of `query` by the model of the dataset; None where the dataset has no chunks to compare it with."""
    catalog, made_by = await services.datasets.read(request, owner, name, _model)
    if made_by is None:
        return None
    served = services.registry.served(body.model or made_by)
    entry = served.entry
    if entry is not None and not catalog.vectors.startswith(entry.made_by):
        raise DatasetModelMismatch(
            f"The dataset holds vectors of {catalog.vectors}, and {served.name} is {entry.made_by}. Name the model "
            "that made them, send a vector of that model, or load the documents again into another dataset.",
            param="model",
        )
    submission = services.requests.search_query(
        body.query or "",
        model=served.name,
        dimensions=catalog.dimension if entry and catalog.dimension < entry.dimension else None,
        owner=owner,
        wait_s=services.settings.max_wait_s,
    )
    try:
        result = await encode_now(services, request, submission, services.settings.max_wait_s)
    except ItemFailed as error:
        error.param, error.detail = "query", error.detail.replace("input[0]", "query", 1)
        raise
    vector: npt.NDArray[np.floating] = result.vectors[0]
    return vector


def _model(reader: "PartReader", catalog: Catalog) -> tuple[Catalog, str | None]:
    from tasks.search.nearest_chunks import model_of  # noqa: PLC0415 - it needs pyarrow

    return catalog, model_of(reader, catalog)


def _nearest(
    reader: "PartReader", catalog: Catalog, vector: npt.NDArray[np.floating], body: SearchBody
) -> list[dict[str, Any]]:
    from tasks.search.nearest_chunks import nearest_chunks  # noqa: PLC0415 - it needs pyarrow
    from tasks.search.row_filter import RowFilter  # noqa: PLC0415

    if catalog.dimension and len(vector) != catalog.dimension:
        raise InvalidValue(
            f"vector has {len(vector):,} numbers; the vectors of this dataset have {catalog.dimension:,}.",
            param="vector",
        )
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(vector))
    if not np.isfinite(length) or length == 0:
        raise InvalidValue("The vector has no direction: its length is 0 or not finite.", param="vector")
    among = RowFilter(body.filter) if body.filter else None
    rows = nearest_chunks(reader, catalog, vector, body.limit, among)
    return [{"score": round(row.score, 6), **_chunk(row.fields)} for row in rows]


def _chunk(row: "Mapping[str, Any]") -> dict[str, Any]:
    return {
        "document_id": row["doc_id"],
        "chunk": row["chunk_index"],
        "text": row["text"],
        "start": row["start"],
        "end": row["end"],
        "headings": row["headings"],
        "page": row["page"],
        "metadata": orjson.Fragment(row["metadata"]),
    }


def large_json(services: Services, request: Request, content: bytes) -> Response:
    """The response with this JSON, which counts as long as it is sent; raises `Overloaded`."""
    services.answers.take_large(request.scope, len(content))
    return LargeResponse(content, headers=dict(NO_STORE), media_type=JSON)

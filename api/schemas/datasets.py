"""Datasets as clients see them, what they hold, and the body of a search."""

from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, computed_field
from pydantic_core import PydanticCustomError

from api.schemas.answer_parts import DocumentWarning, NoneIfEmpty, Seconds, Shown
from tasks.datasets.contents import StoredDocument
from tasks.document_error import warnings_from_json
from tasks.records.ingestions import is_ingestion_id


class Dataset(Shown):
    """What ingestions have loaded under one name. Times are Unix seconds."""

    id: str = Field(description="Of this dataset: one made later under the same name has another.")
    object: Literal["dataset"] = "dataset"
    name: str = Field(examples=["handbook"])
    version: int
    created_at: Seconds = Field(validation_alias="created_ms")
    updated_at: Seconds = Field(validation_alias="written_ms")
    vectors: Annotated[str | None, NoneIfEmpty] = Field(
        description="The model, its revision and what else makes vectors comparable."
    )
    dimension: Annotated[int | None, NoneIfEmpty]
    rows: int = Field(validation_alias="chunks", description="Chunks.")
    documents: int
    bytes: int = Field(validation_alias="size_bytes")

    @computed_field(description="It has no name of its own and goes with its ingestion's record.")  # type: ignore[prop-decorator]
    @property
    def of_one_ingestion(self) -> bool:
        """Its name is the id of the ingestion."""
        return is_ingestion_id(self.name)


class DeletedDataset(BaseModel):
    """Confirms that a dataset is deleted."""

    name: str
    object: Literal["dataset"] = "dataset"
    deleted: Literal[True] = True


class Document(Shown):
    """A document that has chunks in a dataset."""

    id: str
    chunks: int
    source_uri: Annotated[str | None, NoneIfEmpty]
    title: str | None = Field(
        description="The field `title` of its metadata, or the first heading above its beginning."
    )
    metadata: dict[str, Any]
    warnings: list[DocumentWarning] = Field(description="What could not be read of it.")

    @classmethod
    def of(cls, stored: StoredDocument) -> Self:
        """As it is stored."""
        metadata = orjson.loads(stored.metadata)
        title = metadata.get("title")
        if not title or not isinstance(title, str):
            title = next(iter(orjson.loads(stored.headings)), None)
        warnings = warnings_from_json(stored.warnings)
        return cls.model_validate({**stored._asdict(), "title": title, "metadata": metadata, "warnings": warnings})


class Chunk(Shown):
    """A slice of a document."""

    document_id: str
    chunk: int = Field(validation_alias="position", description="Its number in the document, from 0.")
    text: str
    start: int | None = Field(description="Its first character in the parsed document.")
    end: int | None
    headings: Annotated[list[str], BeforeValidator(orjson.loads)] = Field(description="Above it, the outermost first.")
    page: int | None
    metadata: Annotated[dict[str, Any], BeforeValidator(orjson.loads)] = Field(description="Of the document.")


class ScoredChunk(Chunk):
    """A slice of a document that is near to a query."""

    score: float = Field(
        description="By vectors, the cosine of its vector and that of the query. Else it compares chunks of one answer."
    )


class ScoredChunks(BaseModel):
    """The nearest chunks, best first."""

    object: Literal["list"] = "list"
    data: list[ScoredChunk]
    dataset: str
    version: int = Field(description="Of the dataset, which was searched as a whole.")
    rows: int = Field(description="Chunks in the dataset.")
    took_ms: float = Field(description="Of the search, without the time to encode `query`.")


MAX_HITS = 100
_MAX_FILTERED = 16
_MAX_DIMENSION = 65_536
_EXAMPLE: dict[str, Any] = {"query": "how do I get a refund?", "limit": 3, "filter": {"team": "sales"}}


def _numbers(value: object) -> object:
    # One fault for all of them: pydantic would list each.
    if isinstance(value, list) and any(type(number) not in {int, float} for number in value[:_MAX_DIMENSION]):
        raise PydanticCustomError("numbers_type", "Input should be a list of numbers")
    return value


def _scalar(value: object) -> object:
    # One fault: pydantic would name each type that the value could have had.
    if not isinstance(value, str | int | float | bool):
        raise PydanticCustomError("scalar_type", "Input should be a text, a number or a boolean")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise PydanticCustomError("scalar_range", "Input should be an integer of at most 64 bits")
    return value


def _few(fields: object) -> object:
    # Before pydantic looks at them: it would list the fault of each.
    if isinstance(fields, dict) and len(fields) > _MAX_FILTERED:
        raise PydanticCustomError("many_fields", f"Input should have at most {_MAX_FILTERED} fields")
    return fields


Vector = Annotated[list[float], BeforeValidator(_numbers)]
FieldName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Scalar = Annotated[str | int | float | bool, BeforeValidator(_scalar)]


class SearchBody(BaseModel):
    """Body of `POST /v1/datasets/{name}/search`. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    query: Annotated[str, StringConstraints(min_length=1)] | None = Field(None, description="A text; or `vector`.")
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        None, description="That encodes `query`; by default the model whose vectors the dataset holds."
    )
    mode: Literal["vector", "text", "hybrid"] = Field(
        "vector",
        description="By meaning; by words, which no model encodes; or both. The last two need `query`. hybrid asks no "
        "model if it has a `vector` too.",
    )
    vector: Vector | None = Field(
        None,
        min_length=1,
        max_length=_MAX_DIMENSION,
        description="Of any length but 0, with as many numbers as the vectors of the dataset.",
    )
    limit: int = Field(10, ge=1, le=MAX_HITS, description="Of the chunks in the answer.")
    filter: Annotated[dict[FieldName, Scalar] | None, BeforeValidator(_few)] = Field(
        None,
        json_schema_extra={"maxProperties": _MAX_FILTERED},
        description="Fields of the metadata and the value of each; a list has each of its values. `document_id` stands "
        "for the document.",
    )

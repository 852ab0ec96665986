"""What an ingestion is asked for with. What a schema cannot say is in `api.services.ingestion_checks`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from api.schemas.answer_parts import Metadata
from tasks.datasets.names import TABLE
from tasks.errors import Invalid
from tasks.records.ingestions import MAX_METADATA_DEPTH, is_ingestion_id, is_too_deep
from tasks.wire.embeddings_body import ModelName, PromptName
from tasks.wire.validation import Part

MAX_LISTED = 10_000
"""Files or documents that one request names. More documents go into one JSONL file."""
MAX_URLS = 1000

# The source of a body.

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
DocumentId = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Names = Annotated[
    Annotated[list[Name], Field(min_length=1, max_length=100)],
    BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=Name | list[Name]
    ),
]


def _shallow(metadata: dict[str, Any]) -> dict[str, Any]:
    if is_too_deep(metadata):
        raise PydanticCustomError(
            "too_deep", f"Input should have at most {MAX_METADATA_DEPTH} levels of objects and lists"
        )
    return metadata


DocumentMetadata = Annotated[dict[str, Any], AfterValidator(_shallow)]


class FileReference(Part):
    """An uploaded file as a document, or as many if it is of records; or one that is not sent, as it is unchanged."""

    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="Of the bytes of a file that is not sent. It fails with not_sent if it is not unchanged."
    )
    id: Name | None = Field(None, validate_default=True, description="Of a file from POST /v1/files; or `sha256`.")
    document_id: DocumentId | None = Field(
        None, validate_default=True, description="By default the file's name. Beside `sha256` it is needed."
    )
    metadata: DocumentMetadata | None = Field(None, description="Goes with each of its chunks. Not beside `sha256`.")

    @field_validator("id", "document_id", "metadata")
    @classmethod
    def _fits_the_digest(cls, value: Any, others: ValidationInfo) -> Any:
        unsent, name = others.data.get("sha256") is not None, others.field_name
        if value is None and name == ("document_id" if unsent else "id"):
            raise PydanticCustomError("missing", "Field required")
        if value is not None and unsent and name != "document_id":
            raise PydanticCustomError("beside_sha256", "Input should be left out beside sha256")
        return value


_File = Annotated[
    FileReference,
    BeforeValidator(
        lambda value: {"id": value} if isinstance(value, str) else value, json_schema_input_type=Name | FileReference
    ),
]


class InlineDocument(Part):
    """A document in the request itself."""

    id: DocumentId
    text: Annotated[str, StringConstraints(min_length=1)]
    metadata: DocumentMetadata | None = None


class RecordFields(Part):
    """Which fields of a record mean what."""

    id: Name | None = Field(None, description="By default the first there is of id, _id, doc_id; else its number.")
    text: Names | None = Field(None, description="By default text, content or body; several are joined.")
    metadata: Names | None = Field(None, description='"*" for all others; by default the field metadata.')
    separator: Annotated[str, StringConstraints(max_length=16)] | None = Field(
        None, description="Between joined texts; an empty line by default."
    )


SourceKind = Literal["files", "urls", "documents"]
SOURCE_KINDS: Sequence[SourceKind] = get_args(SourceKind)
"""Fields of `source`, one of which a request has."""


class Source(Part):
    """What is read: one of files, urls and documents."""

    files: Annotated[list[_File], FailFast()] = Field(
        [], min_length=1, max_length=MAX_LISTED, description="Uploaded files: ids, or objects that say more."
    )
    urls: Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=4096)]], FailFast()] = Field(
        [],
        min_length=1,
        max_length=MAX_URLS,
        description="Of files, folders and globs that the server may read (EMBEDQ_INGEST_ROOTS).",
    )
    documents: Annotated[list[InlineDocument], FailFast()] = Field([], min_length=1, max_length=MAX_LISTED)
    fields: RecordFields | None = Field(None, description="For records in JSONL, CSV and Parquet.")
    format: Literal["jsonl", "csv", "tsv", "parquet"] | None = Field(
        None, description="Of all files, whatever their names say."
    )
    records: bool | None = Field(None, description="false: a file of records is one document, too.")

    @model_validator(mode="before")
    @classmethod
    def _of_one_kind(cls, source: Any) -> Any:
        if not isinstance(source, dict):
            return source
        given = [kind for kind in SOURCE_KINDS if source.get(kind) is not None]
        if not given:
            kinds = f"{', '.join(SOURCE_KINDS[:-1])} and {SOURCE_KINDS[-1]}"
            raise Invalid("missing_required_parameter", f"source needs one of {kinds}.", param="source")
        if len(given) > 1:
            raise Invalid(
                "invalid_value",
                f"source has {' and '.join(given)}; one ingestion has one kind of source.",
                param=f"source.{given[1]}",
            )
        return source

    @property
    def kind(self) -> SourceKind:
        """Which of the three it is."""
        return next(kind for kind in SOURCE_KINDS if getattr(self, kind))

    def listed(self) -> list[Any]:
        """What it names, as JSON."""
        named: list[Any] = self.model_dump(include={str(self.kind)}, exclude_none=True)[self.kind]
        return named

    def options(self) -> dict[str, Any]:
        """The rest of it, as JSON."""
        options = self.model_dump(exclude=set[str](SOURCE_KINDS), exclude_none=True)
        if self.fields and self.fields.metadata == ["*"]:
            options["fields"]["metadata"] = "*"
        return options


# The rest of a body.


class StaticSizes(Part):
    """Chunks of at most so many tokens."""

    max_chunk_size_tokens: int = Field(ge=16, le=1_000_000, description="At most the model's maximum.")
    chunk_overlap_tokens: int = Field(0, ge=0, description="At most half of max_chunk_size_tokens.")

    @field_validator("chunk_overlap_tokens")
    @classmethod
    def _at_most_half(cls, overlap: int, others: ValidationInfo) -> int:
        half = others.data.get("max_chunk_size_tokens", 2 * overlap) // 2
        if overlap > half:
            raise PydanticCustomError("much_overlap", f"Input should be at most half of the size, {half:,}")
        return overlap


class StaticChunking(Part):
    """Chunks of a size of one's own."""

    type: Literal["static"]
    static: StaticSizes


class UsualChunking(Part):
    """auto: by structure, up to the model's maximum. none: a document is a chunk."""

    type: Literal["auto", "none"]


class DatasetSink(Part):
    """A dataset of the server."""

    type: Literal["dataset"]
    dataset: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")] | None = Field(
        None, description="By default one of its own. The same again is incremental."
    )

    @field_validator("dataset")
    @classmethod
    def _is_no_ingestion(cls, name: str | None) -> str | None:
        if name is not None and is_ingestion_id(name):
            raise PydanticCustomError("ingestion_name", "Input should not be the id of an ingestion: it names its own")
        return name


class PostgresSink(Part):
    """A table of a database."""

    type: Literal["postgresql"]
    name: Name = Field(description="Of a connection of the server (EMBEDQ_SINKS).")
    table: Annotated[str, StringConstraints(pattern=f"^{TABLE}$")] = Field(description="Made if it is not there.")


Chunking = Annotated[StaticChunking | UsualChunking, Field(discriminator="type")]
Sink = Annotated[DatasetSink | PostgresSink, Field(discriminator="type")]
Mode: TypeAlias = Literal["skip_unchanged", "upsert", "sync"]

_EXAMPLE: dict[str, Any] = {
    "source": {"documents": [{"id": "a", "text": "The cat sat on the mat."}]},
    "chunking": {"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 20}},
    "sink": {"type": "dataset", "dataset": "handbook"},
    "mode": "skip_unchanged",
}


class NewIngestion(BaseModel):
    """Body of `POST /v1/ingestions`. Unknown fields are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    source: Source
    chunking: Chunking = Field(UsualChunking(type="auto"), description="By default of the type auto.")
    sink: Sink = Field(DatasetSink(type="dataset"), description="By default of the type dataset.")
    mode: Mode = Field("skip_unchanged", description="upsert redoes, sync deletes.")
    on_conflict: Literal["fail", "replace"] | None = Field(
        None, description="Of an id that another file has brought; by default fail in the mode skip_unchanged."
    )
    model: ModelName | None = Field(None, description="A name from GET /v1/models; by default the server's own model.")
    dimensions: int | None = Field(None, ge=1, description="Cut the vectors to this length and renormalise.")
    normalize: bool = Field(True, description="Scale every vector to length 1.")
    prompt_name: PromptName | None = Field(None, description="One of the model's prompts, put before every chunk.")
    input_type: PromptName | None = Field(None, description="What chunks are, by default document: chooses the prompt.")
    dry_run: bool = Field(False, description="Only count documents, chunks and tokens.")
    metadata: Metadata = Field(None, description="Kept with the ingestion.")

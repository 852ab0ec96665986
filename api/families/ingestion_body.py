"""The body of `POST /v1/ingestions`, with the checks that pydantic cannot express."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args
from urllib.parse import unquote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from api.schemas.common import MetadataKey, MetadataValue
from tasks.errors import InvalidValue, MissingParameter, SourceFailed
from tasks.records.api_keys import NO_LIMITS, Limits
from tasks.records.ingestions import MAX_METADATA_DEPTH, is_too_deep
from tasks.wire.embeddings_body import ModelName, PromptName
from tasks.wire.validation import MAX_METADATA_PAIRS, require_known
from worker_config.settings import Settings

MAX_ID_CHARS = 1024
MIN_CHUNK_TOKENS = 16
MAX_LISTED = 10_000
"""Files or documents that one request names. More documents go into one JSONL file."""
MAX_URLS = 1000
_STRICT = ConfigDict(strict=True, extra="forbid")

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Names = Annotated[list[Name], Field(min_length=1, max_length=100)]
DocumentId = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID_CHARS)]


def _listed(value: object) -> object:
    # One name becomes a list before validation, so that a union need not try both; the document shows both.
    return [value] if isinstance(value, str) else value


def _described(value: object) -> object:
    if not isinstance(value, list):
        return value
    return [{"id": item} if isinstance(item, str) else item for item in value]


_NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 200}
_NAMES_SCHEMA = {"type": "array", "items": _NAME_SCHEMA, "minItems": 1, "maxItems": 100}
OneOrSeveral = Annotated[
    Names, BeforeValidator(_listed), WithJsonSchema({"anyOf": [_NAME_SCHEMA, _NAMES_SCHEMA]}, mode="validation")
]


class FileReference(BaseModel):
    """An uploaded file as a document, or as many if it is of records."""

    model_config = _STRICT

    id: Name = Field(description="Of a file from POST /v1/files.")
    document_id: DocumentId | None = Field(None, description="By default the file's name.")
    metadata: dict[str, Any] | None = Field(None, description="Goes with each of its chunks.")


class InlineDocument(BaseModel):
    """A document in the request itself."""

    model_config = _STRICT

    id: DocumentId
    text: Annotated[str, StringConstraints(min_length=1)]
    metadata: dict[str, Any] | None = None


class Fields(BaseModel):
    """Which fields of a record mean what."""

    model_config = _STRICT

    id: Name | None = Field(None, description="By default the first there is of id, _id, doc_id; else its number.")
    text: OneOrSeveral | None = Field(None, description="By default text, content or body; several are joined.")
    metadata: OneOrSeveral | None = Field(None, description='"*" for all others; by default the field metadata.')
    separator: Annotated[str, StringConstraints(max_length=16)] | None = Field(
        None, description="Between joined texts; an empty line by default."
    )


FILES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"anyOf": [_NAME_SCHEMA, FileReference.model_json_schema()]},
    "minItems": 1,
    "maxItems": MAX_LISTED,
}
Files = Annotated[
    list[FileReference],
    Field(min_length=1, max_length=MAX_LISTED),
    BeforeValidator(_described),
    WithJsonSchema(FILES_SCHEMA, mode="validation"),
]
Url = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
Urls = Annotated[list[Url], Field(min_length=1, max_length=MAX_URLS)]
Documents = Annotated[list[InlineDocument], Field(min_length=1, max_length=MAX_LISTED)]


SourceKind = Literal["files", "urls", "documents"]
SOURCE_KINDS: tuple[SourceKind, ...] = get_args(SourceKind)
"""Fields of `source`, one of which a request has. A new kind is one more, with its checks in this file."""


class Source(BaseModel):
    """Where documents come from: one of `files`, `urls`, `documents`."""

    model_config = _STRICT

    files: Files | None = Field(None, description="Uploaded files: ids, or objects that say more.")
    urls: Urls | None = Field(None, description="What the server may read (EMBEDQ_INGEST_ROOTS): globs, too.")
    documents: Documents | None = Field(None, description="The documents themselves.")
    fields: Fields | None = Field(None, description="For records in JSONL, CSV and Parquet.")
    format: Literal["jsonl", "csv", "tsv", "parquet"] | None = Field(
        None, description="Of all files, whatever their names say."
    )
    records: bool | None = Field(None, description="false: a file of records is one document, too.")

    def listed(self) -> tuple[SourceKind, list[Any]]:
        """Which kind of source it is, and the list of what it names as JSON. For a source that has been checked."""
        kind = next(kind for kind in SOURCE_KINDS if getattr(self, kind) is not None)
        named: Sequence[str | BaseModel] = getattr(self, kind)
        return kind, [one if isinstance(one, str) else one.model_dump(exclude_none=True) for one in named]


class StaticChunking(BaseModel):
    """Chunks of at most so many tokens."""

    model_config = _STRICT

    max_chunk_size_tokens: int = Field(ge=MIN_CHUNK_TOKENS, le=1_000_000, description="At most the model's maximum.")
    chunk_overlap_tokens: int = Field(0, ge=0, description="At most half of max_chunk_size_tokens.")


class Chunking(BaseModel):
    """How documents are cut."""

    model_config = _STRICT

    type: Literal["auto", "static", "none"] = Field(description="auto: by structure, up to the model's maximum.")
    static: StaticChunking | None = Field(None, description="For the type static.")


DatasetName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
TableName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,49}\.)?[A-Za-z_][A-Za-z0-9_]{0,49}$")]


class Sink(BaseModel):
    """Where vectors go."""

    model_config = _STRICT

    type: Literal["parquet", "postgresql"]
    dataset: DatasetName | None = Field(
        None, description="Of the type parquet; by default one of its own. The same again is incremental."
    )
    name: Name | None = Field(None, description="Of the type postgresql: a connection of the server (EMBEDQ_SINKS).")
    table: TableName | None = Field(None, description="Of the type postgresql; made if it is not there.")


class IngestionBody(BaseModel):
    """Body of `POST /v1/ingestions`. Unknown fields are refused."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "source": {"documents": [{"id": "a", "text": "The cat sat on the mat."}]},
                    "chunking": {
                        "type": "static",
                        "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 20},
                    },
                    "sink": {"type": "parquet", "dataset": "handbook"},
                    "mode": "skip_unchanged",
                }
            ]
        },
    )

    source: Source
    chunking: Chunking | None = Field(None, description="By default of the type auto.")
    sink: Sink | None = Field(None, description="By default of the type parquet.")
    mode: Literal["skip_unchanged", "upsert", "sync"] = Field(
        "skip_unchanged", description="upsert redoes, sync deletes."
    )
    on_conflict: Literal["fail", "replace"] | None = Field(
        None, description="Of an id that another file has brought; by default fail in the mode skip_unchanged."
    )
    model: ModelName | None = Field(None, description="A name from GET /v1/models; by default the server's own model.")
    dimensions: int | None = Field(None, ge=1, description="Cut the vectors to this length and renormalise.")
    normalize: bool = Field(True, description="Scale every vector to length 1.")
    prompt_name: PromptName | None = Field(None, description="One of the model's prompts, put before every chunk.")
    input_type: PromptName | None = Field(None, description="What chunks are, by default document: chooses the prompt.")
    dry_run: bool = Field(False, description="Only count documents, chunks and tokens.")
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        None, max_length=MAX_METADATA_PAIRS, description="Kept with the ingestion."
    )


# Checks of a body whose fields have the right form.

_OBJECTS: Sequence[tuple[tuple[str, ...], type[BaseModel]]] = (
    (("source",), Source),
    (("source", "fields"), Fields),
    (("chunking",), Chunking),
    (("chunking", "static"), StaticChunking),
    (("sink",), Sink),
)
_LISTS: Sequence[tuple[str, type[BaseModel]]] = (("files", FileReference), ("documents", InlineDocument))


def require_known_fields(body: Mapping[str, Any]) -> None:
    """Raises `UnknownParameter` for a field that is not one of ours, however deep; it names the nearest that is."""
    for path, kind in _OBJECTS:
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, Mapping):
            require_known(value, kind, ".".join(path) + ".")
    source = body.get("source")
    for name, kind in _LISTS:
        items = source.get(name) if isinstance(source, Mapping) else None
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                require_known(item, kind, f"source.{name}[{index}].")


def check_source(source: Source, settings: Settings, key: Limits = NO_LIMITS) -> None:
    """Raises `MissingParameter`, `InvalidValue` or `SourceFailed` where nothing can be read. `key`: the caller's."""
    given = [kind for kind in SOURCE_KINDS if getattr(source, kind) is not None]
    if not given:
        kinds = f"{', '.join(SOURCE_KINDS[:-1])} and {SOURCE_KINDS[-1]}"
        raise MissingParameter(f"source needs one of {kinds}.", param="source")
    if len(given) > 1:
        raise InvalidValue(
            f"source has {' and '.join(given)}; one ingestion has one kind of source.", param=f"source.{given[1]}"
        )
    _check_metadata("files", [file.metadata for file in source.files or ()])
    _check_metadata("documents", [document.metadata for document in source.documents or ()])
    for index, url in enumerate(source.urls or ()):
        param = f"source.urls[{index}]"
        _check_url(url, settings.ingest_roots, param)
        if key.roots is not None and not _tops(_plain(url), key.roots):
            raise SourceFailed("This is not below one of the folders and URLs that your key may read.", param=param)


def check_chunking(chunking: Chunking, max_tokens: int | None) -> None:
    """Raises `MissingParameter` or `InvalidValue`. `max_tokens`: of the model; None: not known yet."""
    static = chunking.static
    if chunking.type != "static":
        if static is not None:
            raise InvalidValue("chunking.static is for the type static only.", param="chunking.static")
        return
    if static is None:
        raise MissingParameter("chunking.static is missing: the type static needs it.", param="chunking.static")
    size, overlap = static.max_chunk_size_tokens, static.chunk_overlap_tokens
    if max_tokens is not None and size > max_tokens:
        raise InvalidValue(
            f"max_chunk_size_tokens is {size:,}; the model reads {max_tokens:,} tokens, special ones included.",
            param="chunking.static.max_chunk_size_tokens",
        )
    if overlap > size // 2:
        raise InvalidValue(
            f"chunk_overlap_tokens is {overlap:,}; at most half of max_chunk_size_tokens is possible: {size // 2:,}.",
            param="chunking.static.chunk_overlap_tokens",
        )


def check_sink(sink: Sink, settings: Settings, key: Limits = NO_LIMITS) -> None:
    """Raises `MissingParameter` or `InvalidValue` where nothing can be loaded. `key`: the caller's."""
    foreign = ("name", "table") if sink.type == "parquet" else ("dataset",)
    unfit = next((name for name in foreign if getattr(sink, name) is not None), None)
    if unfit:
        raise InvalidValue(f"sink.{unfit} is not for the type {sink.type}.", param=f"sink.{unfit}")
    if sink.type == "parquet":
        return
    for name in ("name", "table"):
        if getattr(sink, name) is None:
            raise MissingParameter(f"sink.{name} is missing: the type postgresql needs it.", param=f"sink.{name}")
    named = None if key.sinks is None else {entry.partition("/")[0] for entry in key.sinks}
    connections = [name for name, _ in settings.sinks if named is None or name in named]
    if sink.name not in connections:
        which = f"it has: {', '.join(connections)}" if connections else "it has none; EMBEDQ_SINKS names them"
        raise InvalidValue(f"sink.name is no connection of this server; {which}.", param="sink.name")
    if not key.may_load_into(sink.name or "", sink.table or ""):
        raise InvalidValue("Your key may not load into this table of this connection.", param="sink.table")


def check_body(body: IngestionBody, settings: Settings, max_tokens: int | None, key: Limits = NO_LIMITS) -> None:
    """All of the checks above; raises what they raise."""
    check_source(body.source, settings, key)
    if body.chunking is not None:
        check_chunking(body.chunking, max_tokens)
    if body.sink is not None:
        check_sink(body.sink, settings, key)


def check_again(spec: Mapping[str, Any], settings: Settings, key: Limits) -> None:
    """For an ingestion that was made before: whether its owner's key may still do what `spec` says.

    Raises:
        InvalidValue: it may not load into this table any more.
        SourceFailed: it may read other folders than those that were checked when the ingestion was made.
    """
    sink = Sink.model_validate(spec["sink"])
    if key.sinks is not None:
        check_sink(sink, settings, key)
    if spec.get("shares_table") and not key.shares_table(sink.name or "", sink.table or ""):
        raise InvalidValue(
            "The limits of your key do not name this table any more. Start a new ingestion.", param="sink.table"
        )
    if key.roots is not None and "urls" in spec["source"] and spec.get("roots") != list(key.roots):
        raise SourceFailed("The folders and URLs that your key may read have changed. Start a new ingestion.")


def _check_metadata(kind: str, given: Sequence[Mapping[str, Any] | None]) -> None:
    for index, metadata in enumerate(given):
        if metadata and is_too_deep(metadata):
            raise InvalidValue(
                f"metadata may have at most {MAX_METADATA_DEPTH} levels of objects and lists.",
                param=f"source.{kind}[{index}].metadata",
            )


def _check_url(url: str, roots: Sequence[str], param: str) -> None:
    # Only what its name tells: the worker that reads looks at links, too.
    if not roots:
        raise SourceFailed(
            "This server reads no folders and URLs. Its operator allows them in EMBEDQ_INGEST_ROOTS; or upload files.",
            param=param,
        )
    path = _plain(url)
    tops = _tops(path, roots)
    if not tops or ".." in unquote(path).split("/"):
        raise SourceFailed(
            "This is not below one of the folders and URLs that the server may read (EMBEDQ_INGEST_ROOTS).", param=param
        )
    if all(_is_hidden(path[len(top) :]) for top in tops):
        raise SourceFailed("Files and folders whose names begin with a dot are not read.", param=param)


def _tops(path: str, roots: Sequence[str]) -> list[str]:
    return [top for top in (_plain(root).rstrip("/") for root in roots) if path == top or path.startswith(top + "/")]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") and part != "." for part in unquote(path).split("/"))


def _plain(url: str) -> str:
    return url.removeprefix("file://")

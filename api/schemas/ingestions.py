"""Ingestions as clients see them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import AfterValidator, AliasPath, BeforeValidator, Field
from typing_extensions import TypedDict

from api.schemas.answer_parts import Counts, NoneIfEmpty, Reason, Seconds, Shown, Usage, path_here
from api.schemas.new_ingestion import SOURCE_KINDS, Mode, SourceKind
from api.waiting.why_waiting import WAITING, Waiting
from tasks.records import ingestions
from tasks.records.datasets import Catalog


class SourceShown(TypedDict):
    """What was asked for, without the list of files or documents."""

    type: SourceKind
    count: int
    urls: NotRequired[Annotated[list[str], Field(description="The first 10 of them.")]]
    fields: NotRequired[dict[str, Any]]
    format: NotRequired[str]
    records: NotRequired[bool]


class DocumentCounts(Shown):
    """Documents, by what became of them: completed ones are loaded, or were there unchanged."""

    total: int = Field(description="Known so far; all of them once listing_complete.")
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    unchanged: int = Field(description="Of the completed ones.")
    deleted: int = Field(description="Of earlier ingestions, taken away by the mode sync; not in total.")
    replaced: int = Field(description="Of the completed ones: an earlier ingestion had another content under this id.")
    emptied: int = Field(description="Of the completed ones: they have no text any more, and lost their chunks.")


class ChunkCounts(Shown):
    """Chunks, by how far they are, and their tokens."""

    total: int = Field(validation_alias="chunks")
    embedded: int = Field(validation_alias="chunks_embedded")
    loaded: int = Field(validation_alias="chunks_loaded")
    tokens: int = Field(validation_alias="chunk_tokens")


Hundredths = Annotated[float, AfterValidator(lambda number: round(number, 2))]
Tenths = Annotated[float, AfterValidator(lambda number: round(number, 1))]


class Rate(Shown):
    """Of the last half minute or so; of the whole once it has ended."""

    documents_per_s: Hundredths
    chunks_per_s: Hundredths = Field(description="Embedded; in a dry run, cut.")


def _source(spec: Mapping[str, Any]) -> SourceShown:
    source = dict(spec["source"])
    kind = next(name for name in SOURCE_KINDS if name in source)
    shown: SourceShown = {"type": kind, "count": source.pop(kind), **source}  # type: ignore[typeddict-item]
    return {**shown, "urls": spec["urls_shown"]} if "urls_shown" in spec else shown


def _usage(counts: ingestions.Counts) -> Usage:
    return Usage(prompt_tokens=counts.tokens, total_tokens=counts.tokens)


class Ingestion(Shown):
    """An ingestion. Times are Unix seconds."""

    id: str = Field(examples=["ing_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["ingestion"] = "ingestion"
    status: Literal["queued", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]
    created_at: Seconds = Field(validation_alias="created_ms")
    started_at: Seconds | None = Field(validation_alias="started_ms")
    finished_at: Seconds | None = Field(validation_alias="finished_ms")
    expires_at: Seconds | None = Field(
        validation_alias="expires_ms", description="When this record is deleted; null while it is open."
    )
    model: str
    source: Annotated[SourceShown, BeforeValidator(_source)] = Field(validation_alias="spec")
    chunking: dict[str, Any] = Field(validation_alias=AliasPath("spec", "chunking"), description="As it was asked for.")
    sink: dict[str, Any] = Field(validation_alias=AliasPath("spec", "sink"), description="As it was asked for.")
    mode: Mode = Field(validation_alias=AliasPath("spec", "mode"))
    dry_run: bool
    metadata: dict[str, str] = Field({}, validation_alias=AliasPath("spec", "metadata"))
    counts: Counts = Field(description="Of documents; those that are there unchanged have completed.")
    file_counts: DocumentCounts = Field(validation_alias=AliasPath("counts"))
    listing_complete: bool
    chunks: ChunkCounts = Field(validation_alias=AliasPath("counts"))
    usage: Annotated[Usage, BeforeValidator(_usage)] = Field(validation_alias=AliasPath("counts"))
    rate: Rate | None
    eta_s: Tenths | None = Field(description="Seconds to the end; null while that is unknown.")
    estimate_s: float | None = Field(description="Of a dry run: how long the model would take.")
    error: Reason | None
    waiting_for: str | None = Field(description="model, sink, storage or worker, while it cannot go on without.")
    waiting: Annotated[Waiting | None, WAITING] = None
    resumable: bool = Field(description="It has failed through no fault of its request: retry goes on where it was.")
    warnings: Annotated[list[str], BeforeValidator(lambda warning: [warning] if warning else [])] = Field(
        validation_alias="warning", description="What its owner should know of the vectors."
    )


class IngestionDocument(Shown):
    """One document of an ingestion."""

    id: str
    object: Literal["ingestion.document"] = "ingestion.document"
    source_uri: str = Field(validation_alias="uri")
    status: Literal["queued", "parsing", "embedding", "loading", "loaded", "unchanged", "failed", "counted"]
    stage: str | None = Field(description="Of a failed one: where.")
    last_error: Reason | None = Field(validation_alias="fault")
    content_hash: Annotated[str | None, NoneIfEmpty]
    chunks: int
    tokens: int


class OutputPart(Shown):
    """One Parquet file."""

    object: Literal["ingestion.part"] = "ingestion.part"
    name: str = Field(examples=["part-000003.parquet"])
    rows: int
    documents: int
    bytes: int = Field(validation_alias="size_bytes")
    etag: str
    url: str = ""


class Output(Shown):
    """The Parquet files of a dataset as it is now."""

    object: Literal["list"] = "list"
    dataset: str
    dataset_id: Annotated[str | None, NoneIfEmpty] = Field(
        validation_alias="id", description="Of the dataset: one made later under the same name has another."
    )
    version: int
    dimension: Annotated[int | None, NoneIfEmpty]
    rows: int
    data: list[OutputPart] = Field(validation_alias="listed")

    @classmethod
    def of(cls, ingestion_id: str, catalog: Catalog) -> Self:
        """One version of the dataset of an ingestion."""
        made = cls.model_validate(catalog)
        for part in made.data:
            part.url = path_here(f"/v1/ingestions/{ingestion_id}/output/{part.name}")
        return made

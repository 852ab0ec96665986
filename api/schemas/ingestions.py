"""Ingestions as clients see them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, Field
from typing_extensions import TypedDict

from api.schemas.answer_parts import Counts, DocumentWarning, NoneIfEmpty, Reason, Seconds, Shown, Usage, path_here
from api.schemas.new_ingestion import SOURCE_KINDS, Mode, SourceKind
from api.waiting.why_waiting import WAITING, Waiting
from tasks.datasets.contents import DatasetHead, ExportPart
from tasks.records import ingestions


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
    warned: int = Field(description="Of the completed ones: not all of them could be read.")


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


def _usage(counts: ingestions.DocumentCounts) -> Usage:
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
    waiting_for: str | None = Field(
        description="model, sink, storage, disk_full or worker, while it cannot go on without."
    )
    waiting: Annotated[Waiting | None, WAITING] = None
    resumable: bool = Field(description="It has failed through no fault of its request: retry goes on where it was.")
    warnings: Annotated[list[str], BeforeValidator(lambda warning: [warning] if warning else [])] = Field(
        validation_alias="warning", description="What its owner should know of the vectors, and of its end."
    )


class IngestionDocument(Shown):
    """One document of an ingestion."""

    id: str
    object: Literal["ingestion.document"] = "ingestion.document"
    source_uri: str = Field(validation_alias="uri")
    status: Literal["queued", "parsing", "embedding", "loading", "loaded", "unchanged", "failed", "counted"]
    documents: int = Field(
        description="How many it stands for: of several records that failed alike the first is named."
    )
    stage: str | None = Field(description="Of a failed one: where.")
    last_error: Reason | None = Field(validation_alias="fault")
    content_hash: Annotated[str | None, NoneIfEmpty]
    chunks: int
    tokens: int
    warnings: list[DocumentWarning] = Field(description="What could not be read of it; none of a failed one.")


class DocumentGroup(BaseModel):
    """Documents of an ingestion that failed alike, or that have the same warning."""

    object: Literal["ingestion.document_group"] = "ingestion.document_group"
    code: str
    message: str = Field(description="Of the first of them.")
    count: int
    retryable: bool = Field(description="A retry can help, although nothing was changed.")
    names: list[str] = Field(description="Ids of the first of them.")


class DocumentGroups(BaseModel):
    """Documents by what is to be said of them, the largest group first."""

    object: Literal["list"] = "list"
    data: list[DocumentGroup]
    complete: bool = Field(description="False: these are the first ones, and there are more.")


class KnownDocuments(BaseModel):
    """Documents that need not be sent."""

    object: Literal["list"] = "list"
    data: list[str] = Field(description="Their ids.")


class OutputPart(Shown):
    """One Parquet file, made when it is fetched."""

    object: Literal["ingestion.part"] = "ingestion.part"
    name: str = Field(examples=["part-000000001-4.parquet"], description="It stands for the same rows for ever.")
    rows: int = Field(validation_alias="chunks")
    url: str = ""


class Output(BaseModel):
    """A dataset as it is now, as Parquet files."""

    object: Literal["list"] = "list"
    dataset: str
    dataset_id: str | None = Field(description="Of the dataset: one made later under the same name has another.")
    version: int
    dimension: int | None
    rows: int
    data: list[OutputPart]

    @classmethod
    def of(cls, ingestion_id: str, name: str, head: DatasetHead | None, parts: Sequence[ExportPart]) -> Self:
        """The dataset of an ingestion. `head`: None where there is none."""
        data = [OutputPart.model_validate(part) for part in parts]
        for part in data:
            part.url = path_here(f"/v1/ingestions/{ingestion_id}/output/{part.name}")
        if head is None:
            return cls(dataset=name, dataset_id=None, version=0, dimension=None, rows=0, data=[])
        return cls(
            dataset=name,
            dataset_id=head.id,
            version=head.version,
            dimension=head.dimension or None,
            rows=head.chunks,
            data=data,
        )

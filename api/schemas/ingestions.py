"""Ingestions as clients see them."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any, Literal, NotRequired, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from api.schemas.answer_parts import Counts, Reason, Usage, unix_seconds
from api.schemas.new_ingestion import SOURCE_KINDS, Mode, SourceKind
from api.waiting.why_waiting import WAITING, Waiting
from tasks.records import ingestions
from tasks.records.datasets import Catalog, DatasetPart
from tasks.records.document_outcomes import DocumentOutcome

_TAG_CHARS = 32


class SourceShown(TypedDict):
    """What was asked for, without the list of files or documents."""

    type: SourceKind
    count: int
    urls: NotRequired[Annotated[list[str], Field(description="The first 10 of them.")]]
    fields: NotRequired[dict[str, Any]]
    format: NotRequired[str]
    records: NotRequired[bool]


class DocumentCounts(BaseModel):
    """Documents, by what became of them: completed ones are loaded, or were there unchanged."""

    model_config = ConfigDict(from_attributes=True)

    total: int = Field(validation_alias="documents", description="Known so far; all of them once listing_complete.")
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    unchanged: int = Field(description="Of the completed ones.")
    deleted: int = Field(description="Of earlier ingestions, taken away by the mode sync; not in total.")
    replaced: int = Field(description="Of the completed ones: an earlier ingestion had another content under this id.")
    emptied: int = Field(description="Of the completed ones: they have no text any more, and lost their chunks.")


class ChunkCounts(BaseModel):
    """Chunks, by how far they are, and their tokens."""

    model_config = ConfigDict(from_attributes=True)

    total: int = Field(validation_alias="chunks")
    embedded: int = Field(validation_alias="chunks_embedded")
    loaded: int = Field(validation_alias="chunks_loaded")
    tokens: int = Field(validation_alias="chunk_tokens")


Hundredths = Annotated[float, AfterValidator(lambda number: round(number, 2))]


class Rate(BaseModel):
    """Of the last half minute or so; of the whole once it has ended."""

    model_config = ConfigDict(from_attributes=True)

    documents_per_s: Hundredths
    chunks_per_s: Hundredths = Field(description="Embedded; in a dry run, cut.")


class Ingestion(BaseModel):
    """An ingestion. Times are Unix seconds."""

    id: str = Field(examples=["ing_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["ingestion"] = "ingestion"
    status: Literal["queued", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None = Field(description="When this record is deleted; null while it is open.")
    model: str
    source: SourceShown
    chunking: dict[str, Any] = Field(description="As it was asked for.")
    sink: dict[str, Any] = Field(description="As it was asked for.")
    mode: Mode
    dry_run: bool
    metadata: dict[str, str]
    counts: Counts = Field(description="Of documents; those that are there unchanged have completed.")
    file_counts: DocumentCounts
    listing_complete: bool
    chunks: ChunkCounts
    usage: Usage
    rate: Rate | None
    eta_s: float | None = Field(description="Seconds to the end; null while that is unknown.")
    estimate_s: float | None = Field(description="Of a dry run: how long the model would take.")
    error: Reason | None
    waiting_for: str | None = Field(description="model, sink, storage or worker, while it cannot go on without.")
    waiting: Waiting | None = WAITING
    resumable: bool = Field(description="It has failed through no fault of its request: retry goes on where it was.")
    warnings: list[str] = Field(description="What its owner should know of the vectors.")

    @classmethod
    def of(cls, record: ingestions.Ingestion, waiting: Waiting | None = None) -> Self:
        """The ingestion of the ledger."""
        counts, spec, error = record.counts, record.spec, record.error
        started = [at for status, at in record.times.items() if status != "queued"]
        return cls(
            id=record.id,
            status=record.status.value,
            created_at=record.created_ms // 1000,
            started_at=unix_seconds(min(started, default=None)),
            finished_at=unix_seconds(record.finished_ms),
            expires_at=unix_seconds(record.expires_ms),
            model=record.model,
            source=_source(spec),
            chunking=spec["chunking"],
            sink=spec["sink"],
            mode=spec["mode"],
            dry_run=record.dry_run,
            metadata=spec.get("metadata") or {},
            counts=Counts(total=counts.documents, completed=counts.completed, failed=counts.failed),
            file_counts=DocumentCounts.model_validate(counts),
            listing_complete=record.listing_complete,
            chunks=ChunkCounts.model_validate(counts),
            usage=Usage(prompt_tokens=counts.tokens, total_tokens=counts.tokens),
            rate=record.rate and Rate.model_validate(record.rate),
            eta_s=None if record.eta_s is None else round(record.eta_s, 1),
            estimate_s=record.estimate_s,
            error=error and Reason(code=error.code, message=error.message),
            waiting_for=record.waiting_for,
            waiting=waiting,
            resumable=record.resumable,
            warnings=[record.warning] if record.warning else [],
        )


def _source(spec: Mapping[str, Any]) -> SourceShown:
    source = dict(spec["source"])
    kind = next(name for name in SOURCE_KINDS if name in source)
    shown: SourceShown = {"type": kind, "count": source.pop(kind), **source}  # type: ignore[typeddict-item]
    return {**shown, "urls": spec["urls_shown"]} if "urls_shown" in spec else shown


class IngestionDocument(BaseModel):
    """One document of an ingestion."""

    id: str
    object: Literal["ingestion.document"] = "ingestion.document"
    source_uri: str
    status: Literal["queued", "parsing", "embedding", "loading", "loaded", "unchanged", "failed", "counted"]
    stage: str | None = Field(description="Of a failed one: where.")
    last_error: Reason | None
    content_hash: str | None
    chunks: int
    tokens: int

    @classmethod
    def of(cls, outcome: DocumentOutcome) -> Self:
        """The document as a page of the pipeline has left it."""
        return cls(
            id=outcome.id,
            source_uri=outcome.uri,
            status=outcome.status.value,
            stage=outcome.stage,
            last_error=Reason(code=outcome.code, message=outcome.message) if outcome.code else None,
            content_hash=outcome.content_hash or None,
            chunks=outcome.chunks,
            tokens=outcome.tokens,
        )


class OutputPart(BaseModel):
    """One Parquet file."""

    object: Literal["ingestion.part"] = "ingestion.part"
    name: str = Field(examples=["part-000003.parquet"])
    rows: int
    documents: int
    bytes: int
    etag: str
    url: str


class Output(BaseModel):
    """The Parquet files of a dataset as it is now."""

    object: Literal["list"] = "list"
    dataset: str
    dataset_id: str | None = Field(description="Of the dataset: one made later under the same name has another.")
    version: int
    dimension: int | None
    rows: int
    data: list[OutputPart]

    @classmethod
    def of(cls, ingestion_id: str, catalog: Catalog) -> Self:
        """One version of the dataset of an ingestion."""
        return cls(
            dataset=catalog.dataset,
            dataset_id=catalog.id if catalog.exists else None,
            version=catalog.version,
            dimension=catalog.dimension or None,
            rows=sum(part.rows for part in catalog.listed),
            data=[
                OutputPart(
                    name=part.name,
                    rows=part.rows,
                    documents=part.documents,
                    bytes=part.size_bytes,
                    etag=part_tag(part),
                    url=f"/v1/ingestions/{ingestion_id}/output/{part.name}",
                )
                for part in catalog.listed
            ],
        )


def part_tag(part: DatasetPart) -> str:
    """Never the same for other bytes: stored names are never used twice."""
    return sha256(f"{part.stored} {part.size_bytes}".encode()).hexdigest()[:_TAG_CHARS]

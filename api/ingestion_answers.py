"""Answers about ingestions as pydantic models. They document, as those of `api.answers`."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from api.answers import Reason, Usage


class DocumentCounts(BaseModel):
    """Documents, by what became of them: completed ones are loaded, or were there unchanged."""

    total: int = Field(description="Known so far; all of them once listing_complete.")
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    unchanged: int = Field(description="Of the completed ones.")
    deleted: int = Field(description="Of earlier ingestions, taken away by the mode sync; not in total.")
    replaced: int = Field(description="Of the completed ones: an earlier ingestion had another content under this id.")


class ChunkCounts(BaseModel):
    """Chunks, by how far they are, and their tokens."""

    total: int
    embedded: int
    loaded: int
    tokens: int


class SourceShown(BaseModel):
    """What was asked for, without the list of files or documents."""

    type: Literal["files", "urls", "documents"]
    count: int
    urls: list[str] | None = Field(None, description="The first 10 of them.")
    fields: dict[str, Any] | None = None
    format: str | None = None
    records: bool | None = None


class Rate(BaseModel):
    """Of the last half minute or so; of the whole once it has ended."""

    documents_per_s: float
    chunks_per_s: float = Field(description="Embedded; in a dry run, cut.")


class Ingestion(BaseModel):
    """An ingestion. Times are Unix seconds."""

    id: str = Field(examples=["ing_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["ingestion"]
    status: Literal["queued", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None = Field(description="When this record is deleted; null while it is open.")
    model: str
    source: SourceShown
    chunking: dict[str, Any]
    sink: dict[str, Any]
    mode: Literal["skip_unchanged", "upsert", "sync"]
    dry_run: bool
    metadata: dict[str, str]
    file_counts: DocumentCounts
    listing_complete: bool
    chunks: ChunkCounts
    usage: Usage
    rate: Rate | None
    eta_s: float | None = Field(description="Seconds to the end; null while that is unknown.")
    estimate_s: float | None = Field(description="Of a dry run: how long the model would take.")
    error: Reason | None
    waiting_for: str | None = Field(description="model, sink, storage or worker, while it cannot go on without.")
    resumable: bool = Field(description="It has failed through no fault of its request: retry goes on where it was.")


class IngestionList(BaseModel):
    """A page of ingestions, the newest first."""

    object: Literal["list"]
    data: list[Ingestion]
    first_id: str | None
    last_id: str | None
    has_more: bool


class IngestionDocument(BaseModel):
    """One document of an ingestion."""

    id: str
    object: Literal["ingestion.document"]
    source_uri: str
    status: Literal["queued", "parsing", "embedding", "loading", "loaded", "unchanged", "failed", "counted"]
    stage: str | None = Field(description="Of a failed one: where.")
    last_error: Reason | None
    content_hash: str | None
    chunks: int
    tokens: int


class IngestionDocumentList(BaseModel):
    """Some documents, in the order of the source."""

    object: Literal["list"]
    data: list[IngestionDocument]
    last_id: str | None = Field(description="Value of `after` for the next page; no id of a document.")
    has_more: bool


class OutputPart(BaseModel):
    """One Parquet file."""

    object: Literal["ingestion.part"]
    name: str = Field(examples=["part-000003.parquet"])
    rows: int
    documents: int
    bytes: int
    etag: str
    url: str


class Output(BaseModel):
    """The Parquet files of a dataset as it is now."""

    object: Literal["list"]
    dataset: str
    dataset_id: str | None = Field(description="Of the dataset: one made later under the same name has another.")
    version: int
    dimension: int | None
    rows: int
    data: list[OutputPart]

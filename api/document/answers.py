"""Answers as pydantic models. They document; answers are rendered by hand, which is several times faster."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Counts(BaseModel):
    """How many texts a task has, and how many have ended in which way."""

    total: int
    completed: int
    failed: int


class Usage(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Reason(BaseModel):
    """Why something failed; `code` is stable."""

    code: str
    message: str


class Links(BaseModel):
    """Paths of what can be done with a task."""

    self: str
    result: str
    cancel: str


class Task(BaseModel):
    """A task. Times are Unix seconds."""

    id: str = Field(examples=["task_019a8f6e-3c5b-7d1e-9f00-2b7c4d5e6f70"])
    object: Literal["embedding.task"]
    status: Literal["queued", "in_progress", "completed", "failed", "cancelled", "expired"]
    lane: Literal["online", "bulk"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None = Field(description="When the result is deleted; null while the task is open.")
    deadline: int | None = Field(description="When the task expires if it has not ended.")
    model: str
    counts: Counts
    usage: Usage
    error: Reason | None
    metadata: dict[str, str]
    links: Links


class File(BaseModel):
    """A file, as OpenAI's clients know it. Times are Unix seconds."""

    id: str = Field(examples=["file-019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None = Field(description="When it is deleted; null: when you delete it.")
    filename: str
    purpose: Literal["assistants", "batch", "evals", "fine-tune", "user_data", "vision", "batch_output"]
    status: Literal["processed"]


class FileList(BaseModel):
    """A page of files."""

    object: Literal["list"]
    data: list[File]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(BaseModel):
    """Confirms that a file is deleted."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


class Dataset(BaseModel):
    """What ingestions have loaded into Parquet files under one name."""

    id: str = Field(description="Of this dataset: one made later under the same name has another.")
    object: Literal["dataset"]
    name: str = Field(examples=["handbook"])
    version: int
    created_at: int
    updated_at: int
    vectors: str | None = Field(description="The model, its revision and what else makes vectors comparable.")
    dimension: int | None
    rows: int
    documents: int
    bytes: int
    of_one_ingestion: bool = Field(description="It has no name of its own and goes with its ingestion's record.")


class DatasetList(BaseModel):
    """A page of datasets."""

    object: Literal["list"]
    data: list[Dataset]
    first_id: str | None
    last_id: str | None = Field(description="Value of `after` for the next page: a name.")
    has_more: bool


class DeletedDataset(BaseModel):
    """Confirms that a dataset is deleted."""

    name: str
    object: Literal["dataset"]
    deleted: Literal[True]


class TaskList(BaseModel):
    """A page of tasks, newest first."""

    object: Literal["list"]
    data: list[Task]
    first_id: str | None
    last_id: str | None = Field(description="Value of `after` for the next page.")
    has_more: bool


class Deleted(BaseModel):
    """Confirms that a task is forgotten."""

    id: str
    object: Literal["embedding.task"]
    deleted: Literal[True]


class Embedding(BaseModel):
    """One vector, at the index of its text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(description="Numbers, or base64 of little-endian float32.")
    truncated: bool = Field(False, description="Present and true when the text was cut at the model's maximum.")


class FailedItem(BaseModel):
    """Stands where a text has no vector; only in results of tasks."""

    object: Literal["error"]
    index: int
    error: Reason


class EmbeddingList(BaseModel):
    """Vectors in input order."""

    object: Literal["list"]
    data: list[Embedding | FailedItem]
    model: str
    usage: Usage


class Model(BaseModel):
    """A model. What a worker has not told yet is null."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    alias_of: str | None = Field(description="The canonical name, where this is another name for that model.")
    dimension: int | None = Field(description="Length of its vectors; null until a worker has loaded it.")
    max_tokens: int | None = Field(description="Longest input in tokens, special ones included.")
    device: str | None
    compute: str | None
    precision: str | None
    prompts: list[str] | None
    revision: str | None
    workers: int = Field(description="Live workers that serve it.")
    ready: bool = Field(description="Whether there is one.")


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"]
    data: list[Model]


class TEIInfo(BaseModel):
    """The model and its limits, in the words of text-embeddings-inference."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[str, dict[str, str | None]] = Field(description="The pooling is not told: null.")
    max_concurrent_requests: int = Field(description="What admission lets wait, if every request were one token.")
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: Literal[True]
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


class TEIError(BaseModel):
    """Every error on the routes of text-embeddings-inference."""

    error: str
    error_type: Literal["Validation", "Empty", "Overloaded", "Backend", "Unhealthy"]


class Live(BaseModel):
    """The process is alive."""

    status: Literal["live"]


class Ready(BaseModel):
    """A worker with a loaded model beats."""

    status: Literal["ready"]
    redis: Literal["up"]
    workers: dict[str, int]


class BatchError(BaseModel):
    """One reason why a batch failed; `line` counts from 1."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    """All of them, at most 1,000."""

    object: Literal["list"]
    data: list[BatchError]


class CachedTokens(BaseModel):
    """Always 0 here."""

    cached_tokens: int


class ReasoningTokens(BaseModel):
    """Always 0 here."""

    reasoning_tokens: int


class BatchUsage(BaseModel):
    """Tokens that the model read for a batch."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Batch(BaseModel):
    """A batch. Times are Unix seconds; those of states that it has not reached are null."""

    id: str = Field(examples=["batch_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["batch"]
    endpoint: Literal["/v1/embeddings"]
    model: str = Field("", description="The model that its lines name; absent until they have been read.")
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    expires_at: int
    failed_at: int | None
    in_progress_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: Counts = Field(description="Requests, by what became of them.")
    usage: BatchUsage | None
    metadata: dict[str, str] | None


class BatchList(BaseModel):
    """A page of batches, the newest first."""

    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool


class OpenAIError(BaseModel):
    """The error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None = Field(examples=["input[3]"])
    code: str = Field(examples=["empty_input"])


class Problem(BaseModel):
    """Every error: a problem document of RFC 9457 with OpenAI's member in it."""

    type: str = Field(examples=["urn:embedq:error:empty_input"])
    title: str
    status: int
    detail: str
    instance: str
    error: OpenAIError

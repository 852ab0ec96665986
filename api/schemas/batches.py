"""Batches as OpenAI's clients know them."""

import re
from typing import Annotated, Literal, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas.answer_parts import Counts, Metadata, unix_seconds
from api.waiting.why_waiting import WAITING, Waiting
from tasks.errors import Invalid
from tasks.records import batches
from tasks.records.batches import ENDPOINT, BatchStatus

_MAX_WINDOW_H = 31 * 24
_WINDOW = re.compile(r"([1-9]\d{0,3})h", re.ASCII)
_MS_PER_HOUR = 3_600_000

Short = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class OutputLife(BaseModel):
    """How long the files live that the batch makes, counted from when they are made."""

    model_config = ConfigDict(strict=True, extra="ignore")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class NewBatch(BaseModel):
    """Body of `POST /v1/batches`. Unknown fields are ignored, `null` counts as absent."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={
            "examples": [{"input_file_id": "file-019a…", "endpoint": ENDPOINT, "completion_window": "24h"}]
        },
    )

    input_file_id: Short = Field(description="A file uploaded with the purpose `batch`.")
    endpoint: Short = Field(
        description="The only call that batches can make here.", json_schema_extra={"enum": [ENDPOINT]}
    )
    completion_window: Short = Field(
        description=f"`24h`; any whole number of hours up to {_MAX_WINDOW_H}.",
        json_schema_extra={"pattern": f"^{_WINDOW.pattern}$"},
    )
    metadata: Metadata = Field(None, description="Kept with the batch.")
    output_expires_after: OutputLife | None = None

    def window_ms(self) -> int:
        """The completion window's length; raises `Invalid`."""
        window = _WINDOW.fullmatch(self.completion_window)
        if window is None or int(window[1]) > _MAX_WINDOW_H:
            raise Invalid(
                "invalid_value",
                f"completion_window must be '24h', or another whole number of hours up to '{_MAX_WINDOW_H}h'.",
                param="completion_window",
            )
        return int(window[1]) * _MS_PER_HOUR

    def require_endpoint(self) -> None:
        """Raises `Invalid` when the endpoint is one that batches cannot call."""
        if self.endpoint != ENDPOINT:
            raise Invalid(
                "invalid_value", f"Invalid value for endpoint. Supported values: '{ENDPOINT}'.", param="endpoint"
            )

    def digested(self) -> bytes:
        """Equal for bodies that ask for the same batch."""
        return orjson.dumps(self.model_dump(), option=orjson.OPT_SORT_KEYS)


class BatchError(BaseModel):
    """One reason why a batch failed; `line` counts from 1."""

    model_config = ConfigDict(from_attributes=True)

    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    """All of them, at most 1,000."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class CachedTokens(BaseModel):
    """Always 0 here."""

    cached_tokens: int = 0


class ReasoningTokens(BaseModel):
    """Always 0 here."""

    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    """Tokens that the model read for a batch."""

    input_tokens: int
    input_tokens_details: CachedTokens = CachedTokens()
    output_tokens: int = 0
    output_tokens_details: ReasoningTokens = ReasoningTokens()
    total_tokens: int


class Batch(BaseModel):
    """A batch. Times are Unix seconds; those of states that it has not reached are null."""

    id: str = Field(examples=["batch_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["batch"] = "batch"
    endpoint: Literal["/v1/embeddings"] = "/v1/embeddings"
    # Strict clients of OpenAI's schema take no null here.
    model: str = Field(
        "",
        exclude_if=lambda name: not name,
        description="The model that its lines name; absent until they have been read.",
    )
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
    counts: Counts = Field(description="Requests, by what became of them.")
    request_counts: Counts = Field(description="The same by OpenAI's name.")
    usage: BatchUsage | None
    metadata: dict[str, str] | None
    waiting: Waiting | None = WAITING

    @classmethod
    def of(cls, batch: batches.Batch, waiting: Waiting | None) -> Self:
        """The batch of the ledger."""
        times = {
            f"{status}_at": unix_seconds(batch.times.get(status))
            for status in BatchStatus
            if status is not BatchStatus.VALIDATING
        }
        # Of all errors at once: there may be a thousand.
        errors = BatchErrors.model_validate({"data": batch.errors}) if batch.errors else None
        tokens, counts = batch.tokens, Counts(total=batch.total, completed=batch.completed, failed=batch.failed)
        return cls(
            id=batch.id,
            model=batch.model or "",
            errors=errors,
            input_file_id=batch.input_file_id,
            completion_window=batch.completion_window,
            status=batch.status.value,
            output_file_id=batch.output_file_id,
            error_file_id=batch.error_file_id,
            created_at=batch.created_ms // 1000,
            expires_at=batch.expires_ms // 1000,
            counts=counts,
            request_counts=counts,
            usage=None if tokens is None else BatchUsage(input_tokens=tokens, total_tokens=tokens),
            metadata=dict(batch.metadata) if batch.metadata else None,
            waiting=waiting,
            **times,
        )

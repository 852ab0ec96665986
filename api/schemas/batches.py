"""Batches as OpenAI's clients know them."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from api.schemas.answer_parts import Counts, Metadata, Seconds, Shown
from api.waiting.why_waiting import WAITING, Waiting
from tasks.records.batches import BatchStatus
from tasks.records.jobs import JobError

_MAX_WINDOW_H = 31 * 24

Short = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class OutputLife(BaseModel):
    """How long the files live that the batch makes, counted from when they are made."""

    model_config = ConfigDict(strict=True, extra="ignore")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


def _whole_hours(window: str) -> str:
    if re.fullmatch("[1-9][0-9]{0,2}h", window) is None or int(window[:-1]) > _MAX_WINDOW_H:
        raise PydanticCustomError(
            "window", f"Input should be '24h', or another whole number of hours up to '{_MAX_WINDOW_H}h'"
        )
    return window


class NewBatch(BaseModel):
    """Body of `POST /v1/batches`. Unknown fields are ignored, `null` counts as absent."""

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={
            "examples": [{"input_file_id": "file-019a…", "endpoint": "/v1/embeddings", "completion_window": "24h"}]
        },
    )

    input_file_id: Short = Field(description="A file uploaded with the purpose `batch`.")
    endpoint: Literal["/v1/embeddings"] = Field(description="The only call that batches can make here.")
    completion_window: Annotated[Short, AfterValidator(_whole_hours)] = Field(
        description=f"`24h`; any whole number of hours up to {_MAX_WINDOW_H}.",
        json_schema_extra={"pattern": "^[1-9][0-9]{0,2}h$"},
    )
    metadata: Metadata = Field(None, description="Kept with the batch.")
    output_expires_after: OutputLife | None = None

    @property
    def window_ms(self) -> int:
        """The completion window's length."""
        return int(self.completion_window[:-1]) * 3_600_000

    @property
    def digested(self) -> bytes:
        """Equal for bodies that ask for the same batch."""
        return orjson.dumps(self.model_dump(), option=orjson.OPT_SORT_KEYS)


class BatchError(Shown):
    """One reason why a batch failed; `line` counts from 1."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    """All of them, at most 1,000."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class BatchUsage(BaseModel):
    """Tokens that the model read for a batch. What only other models have is 0."""

    input_tokens: int
    input_tokens_details: dict[Literal["cached_tokens"], int] = {"cached_tokens": 0}
    output_tokens: int = 0
    output_tokens_details: dict[Literal["reasoning_tokens"], int] = {"reasoning_tokens": 0}
    total_tokens: int


def _errors(faults: Sequence[JobError]) -> dict[str, Any] | None:
    return {"data": faults} if faults else None


def _usage(tokens: int | None) -> dict[str, int] | None:
    return None if tokens is None else {"input_tokens": tokens, "total_tokens": tokens}


def _when(status: BatchStatus) -> Any:
    return Field(None, validation_alias=AliasPath("times", status))


class Batch(Shown):
    """A batch. Times are Unix seconds; those of states that it has not reached are null."""

    id: str = Field(examples=["batch_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["batch"] = "batch"
    endpoint: Literal["/v1/embeddings"] = "/v1/embeddings"
    # Strict clients of OpenAI's schema take no null here.
    model: Annotated[str, BeforeValidator(lambda name: name or "")] = Field(
        exclude_if=lambda name: not name, description="The model that its lines name; absent until they have been read."
    )
    errors: Annotated[BatchErrors | None, BeforeValidator(_errors)]
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: Seconds = Field(validation_alias="created_ms")
    expires_at: Seconds = Field(validation_alias="until_ms")
    failed_at: Seconds | None = _when(BatchStatus.FAILED)
    in_progress_at: Seconds | None = _when(BatchStatus.IN_PROGRESS)
    finalizing_at: Seconds | None = _when(BatchStatus.FINALIZING)
    completed_at: Seconds | None = _when(BatchStatus.COMPLETED)
    expired_at: Seconds | None = _when(BatchStatus.EXPIRED)
    cancelling_at: Seconds | None = _when(BatchStatus.CANCELLING)
    cancelled_at: Seconds | None = _when(BatchStatus.CANCELLED)
    counts: Counts = Field(description="Requests, by what became of them.")
    request_counts: Counts = Field(validation_alias=AliasPath("counts"), description="The same by OpenAI's name.")
    usage: Annotated[BatchUsage | None, BeforeValidator(_usage)] = Field(validation_alias="tokens")
    metadata: dict[str, str] | None
    waiting: Annotated[Waiting | None, WAITING] = None

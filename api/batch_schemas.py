"""The body of `POST /v1/batches`, and what of it pydantic cannot say."""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.schemas import MAX_METADATA_PAIRS, MetadataKey, MetadataValue
from tasks.errors import InvalidValue
from tasks.ledger.batches import ENDPOINT

MAX_WINDOW_H = 31 * 24
_WINDOW = re.compile(r"([1-9]\d{0,3})h")
_MS_PER_HOUR = 3_600_000
_MAX_KEY_CHARS = 255

Short = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class OutputLife(BaseModel):
    """How long the files live that the batch makes, counted from when they are made."""

    model_config = ConfigDict(strict=True, extra="ignore")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class BatchBody(BaseModel):
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
        description=f"`24h`; any whole number of hours up to {MAX_WINDOW_H}.",
        json_schema_extra={"pattern": f"^{_WINDOW.pattern}$"},
    )
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        None, max_length=MAX_METADATA_PAIRS, description="Kept with the batch."
    )
    output_expires_after: OutputLife | None = None
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=_MAX_KEY_CHARS)] | None = Field(
        None, description="As the header `Idempotency-Key`, which wins over it."
    )

    def window_ms(self) -> int:
        """The completion window's length; raises `InvalidValue`."""
        found = _WINDOW.fullmatch(self.completion_window)
        if found is None or int(found[1]) > MAX_WINDOW_H:
            raise InvalidValue(
                f"completion_window must be '24h', or another whole number of hours up to '{MAX_WINDOW_H}h'.",
                param="completion_window",
            )
        return int(found[1]) * _MS_PER_HOUR

    def require_endpoint(self) -> None:
        """Raises `InvalidValue` when the endpoint is one that batches cannot call."""
        if self.endpoint != ENDPOINT:
            raise InvalidValue(f"Invalid value for endpoint. Supported values: '{ENDPOINT}'.", param="endpoint")

"""Files as OpenAI's clients know them."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError

from api.schemas.answer_parts import Seconds, Shown
from tasks.errors import Invalid
from tasks.wire.validation import translated

_MONTH_S = 2_592_000


class File(Shown):
    """A file. Times are Unix seconds."""

    id: str = Field(examples=["file-019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["file"] = "file"
    bytes: int = Field(validation_alias="size_bytes")
    created_at: Seconds = Field(validation_alias="created_ms")
    expires_at: Seconds | None = Field(
        validation_alias="expires_ms", description="When it is deleted; null: when you delete it."
    )
    filename: str
    purpose: Literal["assistants", "batch", "evals", "fine-tune", "user_data", "vision", "batch_output"]
    status: Literal["processed"] = "processed"


class NewFile(BaseModel):
    """The form of an upload, beside the file."""

    purpose: Literal["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]
    anchor: Literal["created_at"] | None = Field(
        None,
        alias="expires_after[anchor]",
        description="By default files with the purpose batch live 30 days, others until they are deleted.",
    )
    seconds: int | None = Field(None, alias="expires_after[seconds]", ge=3600, le=_MONTH_S)

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> Self:
        """From the fields of the form; raises the `RequestError` that names the field and the fix."""
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise translated(error.errors()[0]) from None

    def expires_in_s(self) -> int | None:
        """How long the file lives; None: until it is deleted. Raises `Invalid` for half of a time."""
        if (self.anchor is None) != (self.seconds is None):
            missing = f"expires_after[{'anchor' if self.anchor is None else 'seconds'}]"
            raise Invalid("missing_required_parameter", f"Missing required parameter: '{missing}'.", param=missing)
        return _MONTH_S if self.seconds is None and self.purpose == "batch" else self.seconds


_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "The bytes.", **_BYTES},
    206: {"description": "Some of them.", **_BYTES},
}
"""`responses` of routes that answer with stored bytes."""

_FORM = NewFile.model_json_schema()
_FORM["required"].append("file")
_NAMED = "With a name of 1 to 255 characters; it ends in `.jsonl` for batch."
_FORM["properties"]["file"] = {"type": "string", "format": "binary", "description": _NAMED}
UPLOAD: dict[str, Any] = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
"""`openapi_extra` of the upload, whose form `api.uploads` reads."""

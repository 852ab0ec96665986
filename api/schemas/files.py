"""Files as OpenAI's clients know them."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, Field

from api.schemas.common import unix_seconds
from api.uploads import MAX_EXPIRY_S, MIN_EXPIRY_S
from tasks.records.files import FileRecord


class File(BaseModel):
    """A file. Times are Unix seconds."""

    id: str = Field(examples=["file-019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = Field(description="When it is deleted; null: when you delete it.")
    filename: str
    purpose: Literal["assistants", "batch", "evals", "fine-tune", "user_data", "vision", "batch_output"]
    status: Literal["processed"] = "processed"

    @classmethod
    def of(cls, file: FileRecord) -> Self:
        """The file of the ledger."""
        return cls(
            id=file.id,
            bytes=file.size_bytes,
            created_at=file.created_ms // 1000,
            expires_at=unix_seconds(file.expires_ms),
            filename=file.filename,
            purpose=file.purpose.value,
        )


_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
CONTENT: Mapping[int | str, Any] = {
    200: {"description": "The bytes.", **_BYTES},
    206: {"description": "Some of them.", **_BYTES},
}
"""`responses` of routes that answer with stored bytes."""

_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"enum": ["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": MIN_EXPIRY_S, "maximum": MAX_EXPIRY_S},
    },
}
UPLOAD: Mapping[str, Any] = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
"""`openapi_extra` of the upload, whose form `api.uploads` reads."""

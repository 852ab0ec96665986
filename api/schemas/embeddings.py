"""Bodies and answers of the calls that carry texts: OpenAI's, text-embeddings-inference's (TEI), and tasks."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema

from api.schemas.answer_parts import Metadata, Reason, Usage
from tasks.wire.embeddings_body import EmbeddingsBody, Texts

MAX_DEADLINE_S = 31 * 86_400
_EXAMPLE: JsonDict = {"input": ["The cat sat on the mat.", "Ein Satz."], "normalize": True, "metadata": {"job": "42"}}


class TaskBody(EmbeddingsBody):
    """Body of `POST /v1/tasks`. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    lane: Literal["online", "bulk"] = Field(
        "online", description="online: somebody waits. bulk gives way to that, and may queue for a day."
    )
    metadata: Metadata = Field(None, description="Kept with the task; 4 KiB of names and values.")
    deadline_s: float | None = Field(
        None, gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False, description="Seconds after which an open task expires."
    )


class EmbedBody(EmbeddingsBody):
    """Body of `POST /embed`, text-embeddings-inference's call. Unknown fields are ignored."""

    model_config = ConfigDict(populate_by_name=True, json_schema_extra={"examples": [{"inputs": ["The cat sat."]}]})

    input: Texts = Field(alias="inputs")
    model: SkipJsonSchema[None] = None  # always the server's own
    truncation_direction: str = Field(
        "right",
        description="The side to cut at; only right is possible, in any case of letters.",
        json_schema_extra={"pattern": "^[Rr][Ii][Gg][Hh][Tt]$"},
    )


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


class TEIInfo(BaseModel):
    """The model and its limits, in the words of text-embeddings-inference."""

    model_config = ConfigDict(protected_namespaces=())

    model_id: str
    model_sha: str
    model_dtype: str
    served_model_name: str
    model_type: dict[str, dict[str, str | None]] = Field(
        {"embedding": {"pooling": None}}, description="The pooling is not told: null."
    )
    max_concurrent_requests: int = Field(description="What admission lets wait, if every request were one token.")
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None = None
    max_client_batch_size: int
    auto_truncate: Literal[True] = True
    tokenization_workers: int
    version: str
    sha: str | None = None
    docker_label: str | None = None

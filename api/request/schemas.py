"""Bodies of requests, as pydantic models: one validation of a parsed object, all of it in compiled code."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StringConstraints, WithJsonSchema
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from tasks.wire import foreign_fields

MAX_DEADLINE_S = 31 * 86_400
MAX_METADATA_PAIRS = 16
_EXAMPLE: JsonDict = {"input": ["The cat sat on the mat.", "Ein Satz."], "normalize": True, "metadata": {"job": "42"}}

# A single string becomes a list before validation, so that a union need not try both; the document shows both.
_INPUT_SCHEMA: dict[str, Any] = {
    "description": "One text or several, each of at least one character.",
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
    ],
}

_NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
_OPENAI_INPUT_SCHEMA = {
    "description": "One text or several, or token numbers of cl100k_base: one array is one text.",
    "anyOf": [*_INPUT_SCHEMA["anyOf"], _NUMBERS, {"type": "array", "items": _NUMBERS, "minItems": 1}],
}

Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1), FailFast(), WithJsonSchema(_INPUT_SCHEMA)]
OpenAITexts = Annotated[list[Text], Field(min_length=1), FailFast(), WithJsonSchema(_OPENAI_INPUT_SCHEMA)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
PromptName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


def _format(value: object) -> object:
    return "float" if foreign_fields.encoding_format(value) is None else value


def _cut(value: object) -> object:
    cut = foreign_fields.truncate(value)
    if isinstance(cut, str):
        raise PydanticCustomError("foreign_value", f"Input should {foreign_fields.TRUNCATE_RULE}")
    return cut


_TRUNCATE = "Cut over-long texts; false makes them errors. As others say it: END and NONE."
_TRUNCATE_SCHEMA = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^([Ee][Nn][Dd]|[Nn][Oo][Nn][Ee])$"}]}
ForeignTruncate = Annotated[bool, BeforeValidator(_cut), WithJsonSchema(_TRUNCATE_SCHEMA)]


class EmbeddingFields(BaseModel):
    """What every embedding request has. `null` counts as absent."""

    model_config = ConfigDict(strict=True, extra="ignore")

    input: Texts
    model: ModelName | None = Field(None, description="A name from GET /v1/models; by default the server's own model.")
    dimensions: int | None = Field(None, ge=1, description="Cut the vectors to this length and renormalise.")
    normalize: bool = Field(True, description="Scale every vector to length 1.")
    prompt_name: PromptName | None = Field(None, description="One of the model's prompts, put before every text.")
    truncate: bool = Field(True, description="Cut over-long texts; false makes them errors.")


class TaskBody(EmbeddingFields):
    """Body of `POST /v1/tasks`. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    lane: Literal["online", "bulk"] = Field("online", description="bulk gives way to online work.")
    metadata: dict[MetadataKey, MetadataValue] | None = Field(
        None, max_length=MAX_METADATA_PAIRS, description="Kept with the task."
    )
    deadline_s: float | None = Field(
        None, gt=0, le=MAX_DEADLINE_S, allow_inf_nan=False, description="Seconds after which an open task expires."
    )


class EmbeddingsBody(EmbeddingFields):
    """Body of `POST /v1/embeddings`, OpenAI's call. Unknown fields are ignored, as clients send all sorts of them."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": ["The cat sat on the mat."], "encoding_format": "float"}]}
    )

    input: OpenAITexts
    encoding_format: Annotated[
        Literal["float", "base64"], BeforeValidator(_format), WithJsonSchema({"enum": ["float", "base64", ""]})
    ] = Field("float", description="base64: of little-endian float32.")
    truncate: ForeignTruncate = Field(True, description=_TRUNCATE)
    input_type: Annotated[str | None, BeforeValidator(foreign_fields.input_type), WithJsonSchema({})] = Field(
        None,
        description="What the texts are for, such as query or document: chooses the model's prompt for that, if it has "
        "one. What is no string, or empty, is ignored. prompt_name comes before it.",
    )


class EmbedBody(EmbeddingFields):
    """Body of `POST /embed`, text-embeddings-inference's call. Unknown fields are ignored."""

    model_config = ConfigDict(populate_by_name=True, json_schema_extra={"examples": [{"inputs": ["The cat sat."]}]})

    input: Texts = Field(alias="inputs")
    truncate: ForeignTruncate = Field(True, description=_TRUNCATE)
    model: SkipJsonSchema[None] = None  # always the server's own
    truncation_direction: str = Field(
        "right",
        description="The side to cut at; only right is possible, in any case of letters.",
        json_schema_extra={"pattern": "^[Rr][Ii][Gg][Hh][Tt]$"},
    )

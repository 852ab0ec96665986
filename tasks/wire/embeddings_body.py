"""The body of `/v1/embeddings`, as the API, batches and the model worker read it: its fields, its limits, its options.

A pydantic model: one validation of a parsed object, all of it in compiled code.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from tasks.errors import InputTooLarge, InvalidValue, TooManyInputs
from tasks.item import Options, size_bytes
from tasks.wire import foreign_fields
from tasks.wire.validation import bad_input, validated

Decode = Callable[[Sequence[object]], list[str]]
"""From one array of token numbers, or several, to texts; raises a `RequestError`."""

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


def _format(value: object) -> object:
    return "float" if foreign_fields.encoding_format(value) is None else value


def _cut(value: object) -> object:
    cut = foreign_fields.truncate(value)
    if isinstance(cut, str):
        raise PydanticCustomError("foreign_value", f"Input should {foreign_fields.TRUNCATE_RULE}")
    return cut


TRUNCATE = "Cut over-long texts; false makes them errors. As others say it: END and NONE."
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

    @property
    def purpose(self) -> str | None:
        """What the texts are for, if the body says so: it chooses one of the model's prompts."""
        return None

    @property
    def needs_prompts(self) -> bool:
        """Whether the options depend on which prompts the model has."""
        return self.prompt_name is None and self.purpose is not None

    def options(self, model: foreign_fields.HasPrompts | None) -> Options:
        """What is asked of the model for each text. None: no worker has loaded it yet."""
        prompt = foreign_fields.prompt_for(self.purpose, model, named=self.prompt_name)
        return Options(prompt, self.dimensions, self.normalize, self.truncate)


class EmbeddingsBody(EmbeddingFields):
    """Body of `POST /v1/embeddings`, OpenAI's call. Unknown fields are ignored, as clients send all sorts of them."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"input": ["The cat sat on the mat."], "encoding_format": "float"}]}
    )

    input: OpenAITexts
    encoding_format: Annotated[
        Literal["float", "base64"], BeforeValidator(_format), WithJsonSchema({"enum": ["float", "base64", ""]})
    ] = Field("float", description="base64: of little-endian float32.")
    truncate: ForeignTruncate = Field(True, description=TRUNCATE)
    input_type: Annotated[str | None, BeforeValidator(foreign_fields.input_type), WithJsonSchema({})] = Field(
        None,
        description="What the texts are for, such as query or document: chooses the model's prompt for that, if it has "
        "one. Values that are not strings, and empty strings, are ignored. prompt_name takes precedence.",
    )

    @classmethod
    def from_fields(
        cls, fields: Mapping[str, Any], *, max_inputs: int | None = None, decode: Decode | None = None
    ) -> "EmbeddingsBody":
        """From the parsed object, with fields in other vendors' words. Raises like `read_texts`."""
        return read_texts(cls, foreign_fields.in_own_words(fields), max_inputs=max_inputs, decode=decode)

    @property
    def purpose(self) -> str | None:
        """What the texts are for."""
        return self.input_type


E = TypeVar("E", bound=EmbeddingFields)


def read_texts(
    kind: type[E], fields: Mapping[str, Any], *, max_inputs: int | None = None, decode: Decode | None = None
) -> E:
    """A body with texts.

    Args:
        kind: of the body.
        fields: the parsed object.
        max_inputs: texts in one request; None: any number.
        decode: makes texts of token numbers; without it they are refused.

    Raises:
        RequestError: the subclass that fits the first thing that is wrong.
    """
    return validated(kind, fields, {"input": lambda value: _texts(value, max_inputs, decode)})


def check_sizes(texts: Sequence[str], max_input_bytes: int) -> None:
    """Raises `InputTooLarge` for the first text of more than `max_input_bytes` bytes of UTF-8."""
    for index, text in enumerate(texts):
        size = size_bytes(text)
        if size > max_input_bytes:
            raise InputTooLarge(
                f"input[{index}] has {size:,} bytes; one text may have {max_input_bytes:,} (EMBEDQ_MAX_INPUT_BYTES). "
                f"Split it into passages.",
                param=f"input[{index}]",
            )


class LoadedModel(foreign_fields.HasPrompts, Protocol):
    """What a worker says of a model that it has loaded."""

    @property
    def dimension(self) -> int:
        """Of its vectors."""


def check_options(options: Options, name: str, model: LoadedModel | None) -> None:
    """Raises `InvalidValue` for options that the model does not have. None: not loaded yet, so it may have all."""
    unfit = options.unfit(model.dimension, model.prompts) if model else None
    if model is None or unfit is None:
        return
    if unfit == "dimensions":
        raise InvalidValue(
            f"dimensions is {options.dimensions:,}; vectors of {name} have {model.dimension:,}.", param="dimensions"
        )
    known = ", ".join(model.prompts) or "none"
    raise InvalidValue(f"prompt_name is no prompt of {name}; it has: {known}.", param="prompt_name")


def wants_base64(fields: Mapping[str, Any]) -> bool:
    """Whether a body that has been checked asks for vectors in base64."""
    return foreign_fields.in_own_words(fields).get("encoding_format") == "base64"


def _texts(value: object, max_inputs: int | None, decode: Decode | None) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return value
    if decode and value and type(value[0]) is int:  # one array is one text, so its length is no number of texts
        return decode(value)
    if max_inputs is not None and len(value) > max_inputs:
        raise TooManyInputs(
            f"input has {len(value):,} texts; one request takes {max_inputs:,}. "
            f"Split it, or send a file to /v1/batches.",
            param="input",
        )
    if decode and value and isinstance(value[0], list):
        return decode(value)
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise bad_input("string_type", f"input[{index}]", text)
    return value

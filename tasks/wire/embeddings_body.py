"""The body of a call for embeddings, whichever way it comes: to a route, as a task, as a line of a batch.

`read_body` is the one validator: a pydantic model, one validation of a parsed object, all of it in compiled code.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from tasks.errors import Invalid
from tasks.item import Options, size_bytes
from tasks.wire import field_aliases
from tasks.wire.validation import validated

Decode = Callable[[Sequence[object]], list[str]]
"""From one array of token numbers, or several, to texts; raises a `RequestError`."""

# A single string becomes a list before validation, so that a union need not try both; the document shows both.
_TEXT = {"type": "string", "minLength": 1}
_NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
INPUT_SCHEMA: dict[str, Any] = {
    "description": "One text or several, each of at least one character.",
    "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}],
}
_OPENAI_INPUT_SCHEMA = {
    "description": "One text or several, or token numbers of cl100k_base: one array is one text.",
    "anyOf": [*INPUT_SCHEMA["anyOf"], _NUMBERS, {"type": "array", "items": _NUMBERS, "minItems": 1}],
}

Text = Annotated[str, StringConstraints(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1), FailFast(), WithJsonSchema(INPUT_SCHEMA)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
PromptName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _cut(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.upper() not in _CUTS:
        rule = "be true, false, 'END' (true) or 'NONE' (false); texts can only be cut at their end"
        raise PydanticCustomError("foreign_value", f"Input should {rule}")
    return _CUTS[value.upper()]


_CUTS = {"END": True, "NONE": False}
"""NVIDIA's and Cohere's words. Their `START` would cut the other side."""
_TRUNCATE_SCHEMA = {"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": "^([Ee][Nn][Dd]|[Nn][Oo][Nn][Ee])$"}]}


class EmbeddingsBody(BaseModel):
    """Body of `POST /v1/embeddings`, OpenAI's call. Unknown fields are ignored, as clients send all sorts of them.

    `null` counts as absent.
    """

    model_config = ConfigDict(
        strict=True,
        extra="ignore",
        json_schema_extra={"examples": [{"input": ["The cat sat on the mat."], "encoding_format": "float"}]},
    )

    input: Annotated[list[Text], Field(min_length=1), FailFast(), WithJsonSchema(_OPENAI_INPUT_SCHEMA)]
    model: ModelName | None = Field(
        None,
        description="A name or alias from GET /v1/models, with or without the organisation sentence-transformers; by "
        "default the server's own model.",
    )
    dimensions: Annotated[int, Field(ge=1), BeforeValidator(_whole)] | None = Field(
        None,
        description="Cut the vectors to this length and renormalise. Only vectors of models that were trained for it "
        "(Matryoshka) stay good.",
    )
    normalize: bool = Field(True, description="Scale every vector to length 1.")
    prompt_name: PromptName | None = Field(None, description="One of the model's prompts, put before every text.")
    truncate: Annotated[bool, BeforeValidator(_cut), WithJsonSchema(_TRUNCATE_SCHEMA)] = Field(
        True, description="Cut over-long texts; false makes them errors. As others say it: END and NONE."
    )
    input_type: Annotated[str | None, BeforeValidator(field_aliases.input_type), WithJsonSchema({})] = Field(
        None,
        description="What the texts are for, such as query or document: chooses the model's prompt for that, if it has "
        "one. Values that are not strings, and empty strings, are ignored. prompt_name takes precedence.",
    )
    encoding_format: Annotated[
        Literal["float", "base64"],
        BeforeValidator(lambda value: "float" if value == "" else value),
        WithJsonSchema({"enum": ["float", "base64", ""]}),
    ] = Field("float", description="base64: of little-endian float32. The result of a task is asked for in its form.")
    user: Any = Field(None, description="Ignored, as is stream: the answer comes whole.")
    stream: Any = Field(None, description="Ignored.")

    @property
    def needs_prompts(self) -> bool:
        """Whether the options depend on which prompts the model has."""
        return self.prompt_name is None and self.input_type is not None

    def options(self, model: field_aliases.HasPrompts | None) -> Options:
        """What is asked of the model for each text. None: no worker has loaded it yet."""
        prompt = field_aliases.prompt_for(self.input_type, model, named=self.prompt_name)
        return Options(prompt, self.dimensions, self.normalize, self.truncate)


E = TypeVar("E", bound=EmbeddingsBody)


def read_body(
    kind: type[E],
    fields: Mapping[str, Any],
    *,
    max_inputs: int | None = None,
    max_input_bytes: int | None = None,
    decode: Decode | None = None,
) -> E:
    """The checked body of a parsed object, with fields in other vendors' words too.

    Args:
        kind: of the body.
        fields: the parsed object.
        max_inputs: texts in one request; None: any number.
        max_input_bytes: of UTF-8 in one text; None: any number. To be left out where the whole body has no more: JSON
            is never shorter than the text in it.
        decode: makes texts of token numbers; without it they are refused.

    Raises:
        RequestError: the subclass that fits the first thing that is wrong.
    """
    own = field_aliases.in_own_words(fields)
    body = validated(kind, own, input=_texts(own.get("input"), max_inputs, decode))
    if max_input_bytes is not None:
        _check_sizes(body.input, max_input_bytes)
    return body


def _check_sizes(texts: Sequence[str], max_input_bytes: int) -> None:
    for index, text in enumerate(texts):
        size = size_bytes(text)
        if size > max_input_bytes:
            raise Invalid(
                "input_too_large",
                f"input[{index}] has {size:,} bytes; one text may have {max_input_bytes:,} (EMBEDQ_MAX_INPUT_BYTES). "
                f"Split it into passages.",
                param=f"input[{index}]",
            )


class LoadedModel(field_aliases.HasPrompts, Protocol):
    """What a worker says of a model that it has loaded."""

    @property
    def dimension(self) -> int:
        """Of its vectors."""


def check_options(options: Options, name: str, model: LoadedModel | None) -> None:
    """Raises `Invalid` for options that the model does not have. None: not loaded yet, so it may have all."""
    unfit = options.unfit(model.dimension, model.prompts) if model else None
    if model is None or unfit is None:
        return
    if unfit == "dimensions":
        raise Invalid(
            "invalid_value",
            f"dimensions is {options.dimensions:,}; vectors of {name} have {model.dimension:,}. Leave it out; some "
            "clients send it because of a setting of their own (dimensions, embedding_dims).",
            param="dimensions",
        )
    known = ", ".join(model.prompts) or "none"
    raise Invalid("invalid_value", f"prompt_name is no prompt of {name}; it has: {known}.", param="prompt_name")


def _texts(value: object, max_inputs: int | None, decode: Decode | None) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return value
    if decode and value and type(value[0]) is int:  # one array is one text, so its length is no number of texts
        return decode(value)
    if max_inputs is not None and len(value) > max_inputs:
        raise Invalid(
            "too_many_inputs",
            f"input has {len(value):,} texts; one request takes {max_inputs:,}. "
            f"Split it, or send a file to /v1/batches.",
            param="input",
        )
    if decode and value and isinstance(value[0], list) and value[0] and type(value[0][0]) is int:
        return decode(value)
    return value

"""From a parsed object to a checked body, or to the error that names the field and the fix."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from api.queue.served_models import Registry
from api.request.schemas import MAX_METADATA_PAIRS
from tasks.errors import (
    EmbedqError,
    EmptyInput,
    InputTooLarge,
    InvalidType,
    InvalidUnicode,
    InvalidValue,
    MissingParameter,
    TooManyInputs,
    UnknownParameter,
)

B = TypeVar("B", bound=BaseModel)
Decode = Callable[[Sequence[object]], list[str]]
"""From one array of token numbers, or several, to texts; raises a `RequestError`."""

_SHOWN_CHARS = 64


class HasOptions(Protocol):
    """A body with what not every model can do."""

    dimensions: int | None
    prompt_name: str | None


def checked(kind: type[B], fields: dict[str, Any], *, max_inputs: int, decode: Decode | None = None) -> B:
    """The body as a value.

    Args:
        kind: of the body.
        fields: the parsed object.
        max_inputs: texts in one request.
        decode: makes texts of token numbers; without it they are refused.

    Raises:
        RequestError: the subclass that fits the first thing that is wrong; a misspelt field comes before the rest.
    """
    # pydantic finds every fault of a body in one call that holds the interpreter lock, for seconds in a body made for
    # that. What a body can have thousands of is looked at here and ends at the first fault.
    if kind.model_config.get("extra") == "forbid":
        require_known(fields, kind)
    present = {name: fields[name] for name in kind.model_fields if fields.get(name) is not None}
    if "input" in present:
        present["input"] = _texts(present["input"], max_inputs, decode)
    _require_few_pairs(present.get("metadata"))
    try:
        return kind.model_validate(present)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=True)
        raise _translated(problems[0]) from None


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


def size_bytes(text: str) -> int:
    """Bytes of the text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_options(body: HasOptions, model: str, registry: Registry) -> None:
    """Raises `InvalidValue` for options that this model does not have. A model that nobody loaded yet has them all."""
    entry = registry.entry(model)
    if entry is None:
        return
    if body.dimensions is not None and body.dimensions > entry.dimension:
        raise InvalidValue(
            f"dimensions is {body.dimensions:,}; vectors of {model} have {entry.dimension:,}.", param="dimensions"
        )
    if body.prompt_name is not None and body.prompt_name not in entry.prompts:
        known = ", ".join(entry.prompts) or "none"
        raise InvalidValue(f"prompt_name is no prompt of {model}; it has: {known}.", param="prompt_name")


def require_known(fields: Iterable[str], kind: type[BaseModel], where: str = "") -> None:
    """Raises `UnknownParameter` for a field that a `kind` does not have. `where`: that of the object, as `source.`."""
    unknown = next((name for name in fields if name not in kind.model_fields), None)
    if unknown is None:
        return
    shown = unknown[:_SHOWN_CHARS]
    nearest = difflib.get_close_matches(shown, kind.model_fields, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(kind.model_fields)}."
    raise UnknownParameter(f"There is no field {where + shown!r}; {hint}", param=where + shown)


def _texts(value: object, max_inputs: int, decode: Decode | None) -> object:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return value
    if decode and value and type(value[0]) is int:  # one array is one text, so its length is no number of texts
        return decode(value)
    if len(value) > max_inputs:
        raise TooManyInputs(
            f"input has {len(value):,} texts; one request takes {max_inputs:,}. "
            f"Split it, or send a file to /v1/batches.",
            param="input",
        )
    if decode and value and isinstance(value[0], list):
        return decode(value)
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise _bad_input("string_type", f"input[{index}]", text)
    return value


def _require_few_pairs(metadata: object) -> None:
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA_PAIRS:
        raise InvalidValue(f"metadata has {len(metadata):,} pairs; {MAX_METADATA_PAIRS} are taken.", param="metadata")


def _translated(found: ErrorDetails) -> EmbedqError:
    kind, param = found["type"], _param(found["loc"])
    requirement = found["msg"].removeprefix("Input should ")
    if kind == "missing":
        return MissingParameter(f"{param} is missing.", param=param)
    if param.partition("[")[0] == "input":
        return _bad_input(kind, param, found["input"])
    if kind == "string_unicode":
        return InvalidUnicode(f"{param} is not valid Unicode.", param=param)
    if kind.endswith("_type"):
        return InvalidType(f"{param} must {requirement}.", param=param)
    return InvalidValue(f"{param} must {_lower(requirement)}.", param=param)


def _bad_input(kind: str, param: str, value: object) -> EmbedqError:
    if kind == "too_short":
        return EmptyInput("input is an empty list; send at least one text.", param=param)
    if kind == "string_too_short":
        return EmptyInput(f"{param} is an empty string; leave it out or send a text.", param=param)
    if kind == "string_unicode":
        return InvalidUnicode(f"{param} is not valid Unicode.", param=param)
    if "[" in param and _token_like(value):
        return InvalidType(
            f"{param} holds token numbers; send strings (LangChain: check_embedding_ctx_length=False).", param=param
        )
    expected = "a string" if "[" in param else "a string or a list of strings"
    return InvalidType(f"{param} must be {expected}.", param=param)


def _token_like(value: object) -> bool:
    return type(value) is int or (isinstance(value, list) and bool(value) and type(value[0]) is int)


def _param(location: Sequence[int | str]) -> str:
    # pydantic ends the location of a bad key of an object with "[key]".
    parts = [part for part in location if part != "[key]"]
    path = str(parts[0])
    for part in parts[1:]:
        path += f"[{part}]" if isinstance(part, int) else f".{part[:_SHOWN_CHARS]}"
    return path


def _lower(sentence: str) -> str:
    # "Dictionary should have at most 16 items" and its kind begin with what the thing is.
    _, should, rest = sentence.partition(" should ")
    return rest if should else sentence

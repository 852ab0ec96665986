"""What is wrong with the `body` of one line: what `POST /v1/embeddings` would answer, before any work is done. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from tasks.documents.batches.facts import Limits, Models
from tasks.errors import MissingParameter, RequestError
from tasks.storage.vector_part import RowError
from tasks.wire import foreign_fields

_MAX_NAME_CHARS = 200


def body_fault(body: dict[str, Any], model: str, models: Models, limits: Limits) -> RowError | None:
    """The first fault; None: the body can be encoded. `model` is known."""
    try:
        own = foreign_fields.in_own_words(body)
    except foreign_fields.ForeignFieldRefused as refused:
        return _value(refused.field, f"must {refused.rule}")
    return next(_faults(own, model, models, limits), None)


def inputs_of(body: dict[str, Any]) -> list[str]:
    """The texts of a body without fault."""
    texts: str | list[str] = body["input"]
    return [texts] if isinstance(texts, str) else texts


def _faults(body: Mapping[str, Any], model: str, models: Models, limits: Limits) -> Iterator[RowError]:
    yield from _input(body.get("input"), limits)
    if body.get("stream") not in (None, False):
        yield _fault("streaming_unsupported", "stream", "Streaming is not supported in a batch.")
    yield from _dimensions(body.get("dimensions"), model, models)
    if foreign_fields.encoding_format(body.get("encoding_format")) not in (None, "float", "base64"):
        yield _value("encoding_format", "must be 'float' or 'base64'")
    if not isinstance(body.get("normalize"), bool | None):
        yield _type("normalize", "must be true or false")
    cut = foreign_fields.truncate(body.get("truncate"))
    if isinstance(cut, str):
        yield _value("truncate", f"must {foreign_fields.TRUNCATE_RULE}")
    elif not isinstance(cut, bool | None):
        yield _type("truncate", "must be true or false")
    yield from _prompt(body.get("prompt_name"), model, models)


def _input(value: object, limits: Limits) -> Iterator[RowError]:
    if value is None:
        yield _fault(MissingParameter.code, "input", "input is missing.")
        return
    if isinstance(value, str):
        yield from _text(value, "input[0]", limits)
        return
    if not isinstance(value, list):
        yield _type("input", "must be a string or a list of strings")
        return
    if not value:
        yield _fault("empty_input", "input", "input is an empty list; send at least one text.")
    if len(value) > limits.max_line_inputs:
        yield _fault(
            "too_many_inputs", "input", f"input has {len(value):,} texts; one request takes {limits.max_line_inputs:,}."
        )
    for index, text in enumerate(value):
        yield from _text(text, f"input[{index}]", limits)


def _text(text: object, param: str, limits: Limits) -> Iterator[RowError]:
    if not isinstance(text, str):
        what = "holds token numbers; send strings" if _token_like(text) else "must be a string"
        yield _fault("invalid_type", param, f"{param} {what}.")
    elif not text:
        yield _fault("empty_input", param, f"{param} is an empty string; leave it out or send a text.")
    elif 4 * len(text) > limits.max_input_bytes and len(text.encode()) > limits.max_input_bytes:
        yield _fault(
            "input_too_large",
            param,
            f"{param} has more than {limits.max_input_bytes:,} bytes (EMBEDQ_MAX_INPUT_BYTES). Split it into passages.",
        )


def _dimensions(value: object, model: str, models: Models) -> Iterator[RowError]:
    if value is None:
        return
    if type(value) is not int:
        yield _type("dimensions", "must be a whole number")
        return
    entry = models.entry(model)
    if value < 1:
        yield _value("dimensions", "must be at least 1")
    elif entry is not None and value > entry.dimension:
        yield _value("dimensions", f"is {value:,}; vectors of this model have {entry.dimension:,}")


def _prompt(value: object, model: str, models: Models) -> Iterator[RowError]:
    if value is None:
        return
    entry = models.entry(model)
    if not isinstance(value, str):
        yield _type("prompt_name", "must be a string")
    elif not 1 <= len(value) <= _MAX_NAME_CHARS:
        yield _value("prompt_name", f"must have 1 to {_MAX_NAME_CHARS} characters")
    elif entry is not None and value not in entry.prompts:
        yield _value("prompt_name", f"is no prompt of this model; it has: {', '.join(entry.prompts) or 'none'}")


def _token_like(value: object) -> bool:
    return type(value) is int or (isinstance(value, list) and bool(value) and type(value[0]) is int)


def _type(name: str, requirement: str) -> RowError:
    return _fault("invalid_type", name, f"{name} {requirement}.")


def _value(name: str, requirement: str) -> RowError:
    return _fault("invalid_value", name, f"{name} {requirement}.")


def _fault(code: str, param: str, message: str) -> RowError:
    return RowError(code, message, RequestError.status, param)

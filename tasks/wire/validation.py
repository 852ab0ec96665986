"""From bytes to a parsed object and a checked body, or to the error that names the field and the fix."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from tasks.errors import EmbedqError, Invalid, RequestError

B = TypeVar("B", bound=BaseModel)

_SHOWN_CHARS = 64


def validated(kind: type[B], fields: Mapping[str, Any], *, nulls: bool = False, **read: object) -> B:
    """The body as a value. `null` counts as absent.

    Args:
        kind: of the body.
        fields: the parsed object.
        nulls: `null` counts as given, because it removes something.
        read: by name of a field that is given, the value to be checked in place of its own.

    Raises:
        RequestError: the subclass that fits the first thing that is wrong; a misspelt field comes before the rest.
    """
    # pydantic finds every fault of a body in one call that holds the interpreter lock, for seconds in a body made for
    # that. Whatever a body can have thousands of is checked here or by its type, and ends at the first fault.
    if kind.model_config.get("extra") == "forbid":
        require_known(fields, kind)
    given = (name for name in _names(kind) if name in fields and (nulls or fields[name] is not None))
    present = {name: read.get(name, fields[name]) for name in given}
    try:
        return kind.model_validate(present)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=True)[0]
        first["loc"] = _place(first, present)
        raise translated(first) from None


@cache  # pydantic makes a new mapping at each look at `model_fields`
def _names(kind: type[BaseModel]) -> Sequence[str]:
    return tuple(kind.model_fields)


class Part(BaseModel):
    """A part of a body: `null` counts as absent in it, and unknown fields are refused, one at a time."""

    model_config = ConfigDict(strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        unknown = _unknown((name for name, value in given.items() if value is not None), cls)
        if unknown:
            raise PydanticCustomError("unknown_field", "unknown field", {"field": unknown})
        return {name: value for name, value in given.items() if value is not None}


def _place(problem: ErrorDetails, body: Any) -> tuple[int | str, ...]:
    """The path in the body to what is wrong. pydantic also names the model of a union that it has tried."""
    path, value = list[int | str](), body
    for left, part in zip(range(len(problem["loc"]), 0, -1), problem["loc"], strict=True):
        absent = left == 1 and problem["type"] == "missing"
        known = part in value if isinstance(value, dict) else isinstance(value, list) and part in range(len(value))
        if path and isinstance(part, str) and value is not None and not known and not absent:
            continue
        path.append(part)
        value = value[part] if known else None
    return tuple(path)


def bad_input(kind: str, param: str, value: object) -> RequestError:
    """The error for a value that should be a text. `kind` is pydantic's word for the fault."""
    if kind == "too_short":
        return Invalid("empty_input", "input is an empty list; send at least one text.", param=param)
    if kind == "string_too_short":
        return Invalid("empty_input", f"{param} is an empty string; leave it out or send a text.", param=param)
    if kind == "string_unicode":
        return Invalid("invalid_unicode", f"{param} is not valid Unicode.", param=param)
    if "[" in param and _token_like(value):
        return Invalid("invalid_type", f"{param} holds token numbers; send strings.", param=param)
    expected = "a string" if "[" in param else "a string or a list of strings"
    return Invalid("invalid_type", f"{param} must be {expected}.", param=param)


def _token_like(value: object) -> bool:
    return type(value) is int or (isinstance(value, list) and bool(value) and type(value[0]) is int)


def require_known(fields: Iterable[str], kind: type[BaseModel], where: str = "") -> None:
    """Raises `Invalid` for a field that a `kind` does not have. `where`: the path to it, as `source.`."""
    unknown = _unknown(fields, kind)
    if unknown:
        raise _unknown_parameter(where, *unknown)


def _unknown(fields: Iterable[str], kind: type[BaseModel]) -> tuple[str, str] | None:
    """The first unknown field, and what may have been meant."""
    unknown = next((name for name in fields if name not in _names(kind)), None)
    if unknown is None:
        return None
    shown = unknown[:_SHOWN_CHARS]
    nearest = difflib.get_close_matches(shown, _names(kind), n=1)
    return shown, f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(_names(kind))}."


def _unknown_parameter(where: str, shown: str, hint: str) -> Invalid:
    return Invalid("unknown_parameter", f"There is no field {where + shown!r}; {hint}", param=where + shown)


def translated(problem: ErrorDetails) -> RequestError:
    """The error for what pydantic says of a field."""
    kind, param = problem["type"], _param(problem["loc"])
    if "ctx" in problem and kind in _OF_PARTS:
        return _OF_PARTS[kind](param, problem["ctx"])
    requirement = problem["msg"].removeprefix("Input should ")
    if kind == "missing":
        return Invalid("missing_required_parameter", f"{param} is missing.", param=param)
    if param.partition("[")[0] == "input":
        return bad_input(kind, param, problem["input"])
    if kind == "string_unicode":
        return Invalid("invalid_unicode", f"{param} is not valid Unicode.", param=param)
    if kind.endswith("_type"):
        return Invalid("invalid_type", f"{param} must {requirement}.", param=param)
    return Invalid("invalid_value", f"{param} must {_lower(requirement)}.", param=param)


_OF_PARTS: Mapping[str, Callable[[str, Mapping[str, Any]], RequestError]] = {
    "unknown_field": lambda place, about: _unknown_parameter(f"{place}.", *about["field"]),
    "union_tag_not_found": lambda place, _: Invalid(
        "missing_required_parameter", f"{place}.type is missing.", param=f"{place}.type"
    ),
    "union_tag_invalid": lambda place, about: Invalid(
        "invalid_value", f"{place}.type must be one of {about['expected_tags']}.", param=f"{place}.type"
    ),
}
"""Faults of a `Part`, by pydantic's word: its models are told apart by their `type`."""


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


# Bytes.

_SURROGATE_SEARCH_BYTES = 2**20
"""Above this a lone surrogate is reported by line and column only: finding its field holds the interpreter lock."""
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises:
        Invalid: it is not JSON, or nested too deeply; with line and column.
        Invalid: it is not UTF-8, or a string holds a lone surrogate; with the field.
        Invalid: it is JSON and not an object.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _diagnosis(body, error) from None
    if not isinstance(parsed, dict):
        raise Invalid("invalid_type", 'The body must be a JSON object such as {"input": "some text"}.')
    return parsed


def _diagnosis(body: bytes, error: orjson.JSONDecodeError) -> EmbedqError:
    if not body.strip():
        return Invalid("invalid_json", "The body is empty; a JSON object is needed.")
    try:
        body.decode()
    except UnicodeDecodeError as bad:
        return Invalid("invalid_unicode", f"The body is not valid UTF-8 (byte {bad.start}). Encode it as UTF-8.")
    where = f"line {error.lineno} column {error.colno}"
    if "surrogate" in error.msg:
        param = _surrogate_path(body)
        return Invalid(
            "invalid_unicode", f"{param or 'A string'} holds half of a surrogate pair ({where}).", param=param
        )
    return Invalid("invalid_json", f"The body is not valid JSON: {error.msg} ({where}).")


def _surrogate_path(body: bytes) -> str | None:
    if len(body) > _SURROGATE_SEARCH_BYTES:
        return None
    try:
        parsed = json.loads(body)  # unlike orjson it lets lone surrogates pass, so that they can be found
        return (_broken(parsed, "") or "").removeprefix(".") or None
    except (ValueError, RecursionError):
        return None


def _broken(value: object, path: str) -> str | None:
    """The path to the first lone surrogate below `path`; None: there is none."""
    if isinstance(value, str):
        return path if _SURROGATE.search(value) else None
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        if isinstance(name, str) and _SURROGATE.search(name):
            return path
        part = f"[{name}]" if isinstance(name, int) else f".{name[:_SHOWN_CHARS]}"
        # Our own fields are two levels deep; further down, the place is known well enough by line and column.
        found = _broken(child, path + part if len(path) < _SHOWN_CHARS else path)
        if found is not None:
            return found
    return None

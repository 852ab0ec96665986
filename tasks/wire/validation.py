"""From a parsed object to a checked body, or to the error that names the field and the fix."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tasks.errors import (
    EmptyInput,
    InvalidType,
    InvalidUnicode,
    InvalidValue,
    MissingParameter,
    RequestError,
    UnknownParameter,
)

B = TypeVar("B", bound=BaseModel)

MAX_METADATA_PAIRS = 16
_SHOWN_CHARS = 64
_NOTHING: Mapping[str, Callable[[Any], object]] = MappingProxyType({})


def validated(
    kind: type[B],
    fields: Mapping[str, Any],
    prepare: Mapping[str, Callable[[Any], object]] = _NOTHING,
    *,
    nulls: bool = False,
) -> B:
    """The body as a value. `null` counts as absent.

    Args:
        kind: of the body.
        fields: the parsed object.
        prepare: by name of a field, what makes another value of it before it is checked, or raises a `RequestError`.
        nulls: `null` counts as given, because it removes something.

    Raises:
        RequestError: the subclass that fits the first thing that is wrong; a misspelt field comes before the rest.
    """
    # pydantic finds every fault of a body in one call that holds the interpreter lock, for seconds in a body made for
    # that. Whatever a body can have thousands of is checked here and ends at the first fault.
    if kind.model_config.get("extra") == "forbid":
        require_known(fields, kind)
    present = {name: fields[name] for name in _names(kind) if name in fields and (nulls or fields[name] is not None)}
    for name, prepared in prepare.items():
        if name in present:
            present[name] = prepared(present[name])
    _require_few_pairs(present.get("metadata"))
    try:
        return kind.model_validate(present)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=True)
        raise translated(problems[0]) from None


@cache  # pydantic makes a new mapping at each look at `model_fields`
def _names(kind: type[BaseModel]) -> Sequence[str]:
    return tuple(kind.model_fields)


def bad_input(kind: str, param: str, value: object) -> RequestError:
    """The error for a value that should be a text. `kind` is pydantic's word for the fault."""
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


def require_known(fields: Iterable[str], kind: type[BaseModel], where: str = "") -> None:
    """Raises `UnknownParameter` for a field that a `kind` does not have. `where`: the path to it, as `source.`."""
    unknown = next((name for name in fields if name not in kind.model_fields), None)
    if unknown is None:
        return
    shown = unknown[:_SHOWN_CHARS]
    nearest = difflib.get_close_matches(shown, kind.model_fields, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(kind.model_fields)}."
    raise UnknownParameter(f"There is no field {where + shown!r}; {hint}", param=where + shown)


def _require_few_pairs(metadata: object) -> None:
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA_PAIRS:
        raise InvalidValue(f"metadata has {len(metadata):,} pairs; {MAX_METADATA_PAIRS} are taken.", param="metadata")


def translated(problem: ErrorDetails) -> RequestError:
    """The error for what pydantic says of a field."""
    kind, param = problem["type"], _param(problem["loc"])
    requirement = problem["msg"].removeprefix("Input should ")
    if kind == "missing":
        return MissingParameter(f"{param} is missing.", param=param)
    if param.partition("[")[0] == "input":
        return bad_input(kind, param, problem["input"])
    if kind == "string_unicode":
        return InvalidUnicode(f"{param} is not valid Unicode.", param=param)
    if kind.endswith("_type"):
        return InvalidType(f"{param} must {requirement}.", param=param)
    return InvalidValue(f"{param} must {_lower(requirement)}.", param=param)


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

"""Answers in JSON: the response, the form of lists, and the parts that objects of several families have."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response

T = TypeVar("T")

JSON = "application/json"
NO_STORE: Mapping[str, str] = {"cache-control": "no-store"}


def json_response(content: object, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Response:
    """The response with this content, which orjson can write."""
    return Response(orjson.dumps(content), status, headers, JSON)


def list_json(
    data: Sequence[dict[str, Any]], *, more: bool, until: str | None = None, key: str = "id"
) -> dict[str, Any]:
    """A page in the form of OpenAI's lists. `until`: as in `ListPage`. `key`: of the field that names a place."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0][key] if data else None,
        "last_id": until or (data[-1][key] if data else None),
        "has_more": more,
    }


def unix_seconds(milliseconds: int | None) -> int | None:
    """Whole seconds, as clients read times; None stays None."""
    return None if milliseconds is None else milliseconds // 1000


# Parts of answers as pydantic models. They document; functions render, which is several times faster.


class ListOf(BaseModel, Generic[T]):
    """What `list_json` makes."""

    object: Literal["list"]
    data: list[T]
    first_id: str | None
    last_id: str | None
    has_more: bool


class Counts(BaseModel):
    """How many texts a task has, and how many have ended in which way."""

    total: int
    completed: int
    failed: int


class Usage(BaseModel):
    """Tokens that the model read, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Reason(BaseModel):
    """Why something failed; `code` is stable."""

    code: str
    message: str

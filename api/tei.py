"""The forms of text-embeddings-inference (TEI) that its clients expect on its routes: its errors, its bare vectors."""

from collections.abc import Iterator

import orjson
from starlette.responses import Response

from api import problem
from api.failures import ItemFailed, ItemRefused
from tasks.errors import (
    BacklogFull,
    EmbedqError,
    EmptyInput,
    InternalError,
    InvalidHTTP,
    Overloaded,
    RequestError,
    StorageFull,
    Unavailable,
    WaitTimeout,
)
from tasks.ledger import Result

PATHS = frozenset({"/", "/embed", "/embed/", "/info", "/info/", "/health", "/health/"})
"""Whatever goes wrong on these is told in TEI's form."""

_UNUSABLE = 422
_KINDS: tuple[tuple[type[EmbedqError], int | None, str], ...] = (
    (EmptyInput, 400, "Empty"),
    (ItemRefused, _UNUSABLE, "Validation"),
    (ItemFailed, 424, "Backend"),
    (InvalidHTTP, 400, "Validation"),
    (RequestError, None, "Validation"),
    (BacklogFull, 429, "Overloaded"),
    (Overloaded, 429, "Overloaded"),
    (StorageFull, 429, "Overloaded"),
    (WaitTimeout, 429, "Overloaded"),
    (Unavailable, 503, "Unhealthy"),
    (InternalError, 500, "Backend"),
)
"""Class of the error, status (None: its own), TEI's word; the first that fits counts. TEI knows no 503 for overload."""
_ROWS_AT_ONCE = 32
"""As in `api.vectors`."""


def failure(error: EmbedqError) -> Response:
    """The response to a request that ended in `error`."""
    kind = next((kind for of, _, kind in _KINDS if isinstance(error, of)), "Backend")
    body = {"error": _in_their_words(error), "error_type": kind}
    return Response(orjson.dumps(body), status(type(error)), problem.headers(error), "application/json")


def status(kind: type[EmbedqError]) -> int:
    """With which status errors of this class are told."""
    told = next((status for of, status, _ in _KINDS if issubclass(kind, of)), 500)
    if told is not None:
        return told
    return _UNUSABLE if kind.status == RequestError.status else kind.status


def matrix(result: Result) -> bytes:
    """The vectors as JSON, a list of lists and nothing else."""
    return b"[" + b",".join(_rows(result)) + b"]"


def _rows(result: Result) -> Iterator[bytes]:
    for start in range(0, len(result.vectors), _ROWS_AT_ONCE):
        yield orjson.dumps(result.vectors[start : start + _ROWS_AT_ONCE], option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]


def _in_their_words(error: EmbedqError) -> str:
    # Their field is called `inputs`. A message begins with the field at fault, or names it early.
    if error.param is None or not error.param.startswith("input") or error.param.startswith(("inputs", "input_")):
        return error.detail
    return error.detail.replace(error.param, f"inputs{error.param.removeprefix('input')}", 1)

"""The one place that turns an exception into a response. Routes raise and never format."""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from api.answer.description import SCHEMAS, SECONDS, ResponseHeader, header_objects
from api.answer.json_response import JSON, NO_STORE, json_response
from api.security_headers import security_headers
from tasks.errors import (
    BacklogFull,
    EmbedqError,
    EmptyInput,
    EncodingFailed,
    InternalError,
    InvalidHTTP,
    KeyLimitReached,
    MethodNotAllowed,
    NotReplicated,
    Overloaded,
    RangeNotSatisfiable,
    RateLimited,
    RequestError,
    RouteNotFound,
    StorageFull,
    TaskNotFinished,
    TooManyBatches,
    TooManyIngestions,
    Unauthenticated,
    Unavailable,
    WaitTimeout,
)
from tasks.item import ItemError
from tasks.wire.validation import translated

# Errors that only the web tier has: one text of a request failed, or the caller has left.


class ItemFailed(EncodingFailed):
    """One text of a synchronous request has no vector; the request fails, because clients read a hole as a vector.

    Attributes:
        item_code: the item's own stable code; it takes the place of the class's.
    """

    def __init__(self, index: int, error: ItemError) -> None:
        super().__init__(f"input[{index}]: {error.message}", param=f"input[{index}]")
        self.item_code = error.code


class ItemRefused(ItemFailed):
    """The same where the caller can put it right by sending something else."""

    status = 400
    title = "An input cannot be used"


class CallerGone(Exception):
    """The client closed the connection; nobody reads what is answered."""


def item_failed(index: int, error: ItemError) -> ItemFailed:
    """The error that answers a request whose item `index` failed with `error`."""
    kind = ItemRefused if error.refused else ItemFailed
    return kind(index, error)


# An error as `application/problem+json` (RFC 9457) with the member `error` that OpenAI's clients read.

MEDIA_TYPE = "application/problem+json"


class OpenAIError(BaseModel):
    """The error as OpenAI's clients read it."""

    message: str
    type: str
    param: str | None = Field(examples=["input[3]"])
    code: str = Field(examples=["empty_input"])


class Problem(BaseModel):
    """Every error: a problem document of RFC 9457 with OpenAI's member in it."""

    type: str = Field(examples=["urn:embedq:error:empty_input"])
    title: str
    status: int
    detail: str
    instance: str
    error: OpenAIError


def problem(error: EmbedqError, *, instance: str) -> Response:
    """The response to a request for the path `instance` that ended in `error`."""
    code = code_of(error)
    body = {
        "type": f"urn:embedq:error:{code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": instance,
        "error": {"message": error.detail, "type": error.type, "param": error.param, "code": code},
    }
    return Response(orjson.dumps(body), error.status, headers(error), MEDIA_TYPE)


def refusal(error: EmbedqError) -> Response:
    """The response to what is no request, or one that the app does not see. The connection ends with it."""
    answer = problem(error, instance="")
    own = [(b"connection", b"close"), (b"x-request-id", new_request_id())]
    answer.raw_headers += [*security_headers(answer.raw_headers), *own]
    return answer


def code_of(error: EmbedqError) -> str:
    """The stable code that callers are told."""
    return error.item_code if isinstance(error, ItemFailed) else error.code


def new_request_id() -> bytes:
    """A name for a request whose caller gave it none."""
    return b"req_" + secrets.token_hex(12).encode()


def headers(error: EmbedqError) -> dict[str, str]:
    """What a response to a request that ended in `error` says in its head, whatever the form of its body."""
    lines = {**NO_STORE}
    if error.retry_after_s is not None:
        lines["retry-after"] = str(error.retry_after_s)
    if error.should_retry is not None:
        # openai-python decides by this header before it looks at the status.
        lines["x-should-retry"] = "true" if error.should_retry else "false"
    if isinstance(error, Unauthenticated):
        lines["www-authenticate"] = "Bearer"
    if isinstance(error, RangeNotSatisfiable):
        lines["content-range"] = f"bytes */{error.size_bytes}"
    return lines


_RETRY_AFTER = ResponseHeader("Retry-After", "Seconds.", SECONDS)
_SHOULD_RETRY = ResponseHeader("x-should-retry", "What the status does not tell.", {"enum": ["true", "false"]})
_HEADERS: tuple[tuple[type[EmbedqError], ResponseHeader], ...] = (
    (Unavailable, _RETRY_AFTER),
    (TooManyBatches, _RETRY_AFTER),
    (TooManyIngestions, _RETRY_AFTER),
    (RateLimited, _RETRY_AFTER),
    (KeyLimitReached, _RETRY_AFTER),
    (TaskNotFinished, _RETRY_AFTER),
    (Unauthenticated, ResponseHeader("WWW-Authenticate", None, required=True)),
    (RangeNotSatisfiable, ResponseHeader("Content-Range", "`bytes */` and the size.", required=True)),
)
"""What `headers` writes for errors of a class."""


def _described_headers(kinds: Sequence[type[EmbedqError]]) -> list[ResponseHeader]:
    described = [header for kind, header in _HEADERS if any(issubclass(one, kind) for one in kinds)]
    described += [_SHOULD_RETRY] if any(kind.should_retry is not None for kind in kinds) else []
    return list({header.name: header for header in described}.values())


# Errors in the form of text-embeddings-inference (TEI).

PATHS = frozenset({"/", "/embed", "/embed/", "/info", "/info/", "/health", "/health/"})
"""Whatever goes wrong on these is told in TEI's form."""

_UNUSABLE = 422
_KINDS: tuple[tuple[type[EmbedqError], int | None, str], ...] = (
    (EmptyInput, 400, "Empty"),
    (ItemRefused, _UNUSABLE, "Validation"),
    (ItemFailed, 424, "Backend"),
    (InvalidHTTP, 400, "Validation"),
    (RateLimited, 429, "Overloaded"),
    (KeyLimitReached, 429, "Overloaded"),
    (RequestError, None, "Validation"),
    (BacklogFull, 429, "Overloaded"),
    (Overloaded, 429, "Overloaded"),
    (StorageFull, 429, "Overloaded"),
    (WaitTimeout, 429, "Overloaded"),
    (Unavailable, 503, "Unhealthy"),
    (InternalError, 500, "Backend"),
)
"""Class of the error, status (None: its own), TEI's word; the first that fits counts. TEI knows no 503 for overload."""


class TEIError(BaseModel):
    """Every error on the routes of text-embeddings-inference."""

    error: str
    error_type: Literal["Validation", "Empty", "Overloaded", "Backend", "Unhealthy"]


def failure(error: EmbedqError) -> Response:
    """The response to a request that ended in `error`."""
    kind = next((kind for of, _, kind in _KINDS if isinstance(error, of)), "Backend")
    body = {"error": _in_their_words(error), "error_type": kind}
    return json_response(body, headers(error), status=status(type(error)))


def status(kind: type[EmbedqError]) -> int:
    """With which status errors of this class are told."""
    theirs = next((status for of, status, _ in _KINDS if issubclass(kind, of)), 500)
    if theirs is not None:
        return theirs
    return _UNUSABLE if kind.status == RequestError.status else kind.status


def _in_their_words(error: EmbedqError) -> str:
    # Their field is called `inputs`. A message begins with the field at fault, or names it early.
    if error.param is None or not error.param.startswith("input") or error.param.startswith(("inputs", "input_")):
        return error.detail
    return error.detail.replace(error.param, f"inputs{error.param.removeprefix('input')}", 1)


def error_answers(kinds: Sequence[type[EmbedqError]], path: str) -> dict[int, dict[str, Any]]:
    """The entries of FastAPI's `responses` that describe errors of these classes on a route with this path."""
    theirs = path in PATHS
    schema = {"$ref": SCHEMAS.format(model=(TEIError if theirs else Problem).__name__)}
    by_status: dict[int, list[type[EmbedqError]]] = {}
    for kind in kinds:
        by_status.setdefault(status(kind) if theirs else kind.status, []).append(kind)
    return {
        number: {
            "description": ", or: ".join(dict.fromkeys(kind.title for kind in same)),
            "content": {JSON if theirs else MEDIA_TYPE: {"schema": schema}},
            **header_objects(_described_headers(same)),
        }
        for number, same in sorted(by_status.items())
    }


_PROBLEM = {"$ref": SCHEMAS.format(model=Problem.__name__)}
RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request cannot be used.", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}},
    "5XX": {"description": "Try again, or look at the log.", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}},
}
"""Of FastAPI's routes: every error has this form. `docs/http.md` has a table of the codes."""

_ANSWERED = "embedq.error"


class AnsweredError(NamedTuple):
    """What is kept of the error that answered a request."""

    code: str
    retry_after_s: float | None


CLIENT_CLOSED_REQUEST = 499
"""nginx's number. Nobody receives it; it shows in the metrics."""

_REPEATING = {
    "POST": "Repeat it, with the same Idempotency-Key if it had one.",
    "DELETE": "Repeat it: a 404 or 410 then says that it is deleted.",
}


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Registers the handlers. What they do not know becomes a 500 in `api.server.edge`.

    Args:
        app: where they are registered.
        routes: all that have methods which a 405 must name.
    """
    app.add_exception_handler(EmbedqError, _ours)
    app.add_exception_handler(HTTPException, partial(_routing, routes))
    app.add_exception_handler(CallerGone, _ours)
    app.add_exception_handler(RequestValidationError, _parameters)


def response(error: EmbedqError | CallerGone, scope: Scope, path: str) -> Response:
    """The answer to the request of `scope`, for `path`, which ended in `error`."""
    if isinstance(error, CallerGone):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    if isinstance(error, NotReplicated):
        told = f"{error.detail} {_REPEATING.get(scope['method'], '')}".rstrip()
        error = NotReplicated(told, retry_after_s=error.retry_after_s)
    note(scope, error)
    return failure(error) if path in PATHS else problem(error, instance=path)


def note(scope: Scope, error: EmbedqError) -> None:
    """Notes which error answers the request of `scope`; the metrics count it.

    Never the error itself: its traceback holds the frames that hold the scope. Of such cycles a flood of refused
    requests made 60,000 objects in five seconds, and the garbage collector stood in everybody's way for 130 ms.
    """
    scope[_ANSWERED] = AnsweredError(code_of(error), error.retry_after_s)


def answered(scope: Scope) -> AnsweredError | None:
    """The error that answered the request of `scope`, if one did."""
    return scope.get(_ANSWERED)


async def _ours(request: Request, error: Exception) -> Response:
    return response(cast("EmbedqError | CallerGone", error), request.scope, request.url.path)


async def _parameters(request: Request, error: Exception) -> Response:
    """A header or a query parameter that FastAPI has refused. Bodies are read by `api.dependencies`."""
    first = cast("ErrorDetails", cast("RequestValidationError", error).errors()[0])
    first["loc"] = first["loc"][1:]  # without where it stands: "query"
    return response(translated(first), request.scope, request.url.path)


async def _routing(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    raised = cast("HTTPException", error)
    answer = response(_translated(raised, request), request.scope, request.url.path)
    headers = dict(raised.headers or {})
    if "Allow" in headers:
        methods = _methods(routes, request.scope) | set(headers["Allow"].split(", "))
        headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    answer.headers.update(headers)
    return answer


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> set[str]:
    # Starlette names only those of the first route with this path, and a path has a route for each of its methods.
    fitting = [route for route in routes if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE]
    return {method for route in fitting for method in route.methods or ()}


def _translated(error: HTTPException, request: Request) -> EmbedqError:
    where = f"{request.method} {request.url.path}"
    if error.status_code == RouteNotFound.status:
        return RouteNotFound(f"There is no {where}. {_hint(request.url.path)}")
    if error.status_code == MethodNotAllowed.status:
        return MethodNotAllowed(f"{where} is not possible; the Allow header names the methods that are.")
    return InternalError("Something unexpected happened while the request was routed.")


def _hint(path: str) -> str:
    if path.startswith("/v1/v1"):
        return "The client adds /v1 itself: give it the base address without /v1."
    if path.rstrip("/") == "/v1" or path.startswith("/v1/embed/"):
        return "Clients of text-embeddings-inference take the base address without /v1, those of OpenAI with it."
    return "See /openapi.json for what there is."

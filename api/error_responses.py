"""The one place that turns an error into a response. Routes and services raise and never format.

An error knows its code and its status (`tasks/errors.py`). Here it becomes `application/problem+json` (RFC 9457) with
the member `error` that OpenAI's clients read, or the form of text-embeddings-inference on its paths (`api.tei_errors`).
"""

import random
from http import HTTPStatus
from typing import cast

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Scope

from api.security_headers import security_headers
from api.tei_errors import TEI_PATHS, in_teis_form
from tasks.errors import (
    EmbedqError,
    InternalError,
    Invalid,
    NotFound,
    NotReplicated,
    RangeNotSatisfiable,
    Refused,
    RequestError,
    Unauthenticated,
)
from tasks.item import TextError
from tasks.wire.validation import translated


class TextFailed(RequestError):
    """One text of a synchronous request has no vector; the request fails, because clients read a hole as a vector.

    Its code is that of the text; its status 400 where something else can be sent, 422 otherwise.
    """

    def __init__(self, index: int, error: TextError) -> None:
        super().__init__(f"input[{index}]: {error.message}", param=f"input[{index}]")
        self.code = error.code
        self.status = 400 if error.refused else 422
        self.title = "An input cannot be used" if error.refused else "An input could not be encoded"
        self.should_retry = False


class CallerGone(Exception):
    """The client closed the connection; nobody reads what is answered."""


# The usual form.

MEDIA_TYPE = "application/problem+json"


def problem(error: EmbedqError, *, instance: str) -> Response:
    """The response to a request for the path `instance` that ended in `error`."""
    body = {
        "type": f"urn:embedq:error:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "instance": instance,
        "error": {"message": error.detail, "type": error.type, "param": error.param, "code": error.code},
    }
    return Response(orjson.dumps(body), error.status, headers(error), MEDIA_TYPE)


def new_request_id() -> bytes:
    """A name for a request whose caller gave it none."""
    return b"req_%024x" % random.getrandbits(96)


def refusal(error: EmbedqError) -> Response:
    """The response to what is no request, or one that the app does not see. The connection ends with it."""
    answer = problem(error, instance="")
    own = [(b"connection", b"close"), (b"x-request-id", new_request_id())]
    answer.raw_headers += [*security_headers(answer.raw_headers), *own]
    return answer


def headers(error: EmbedqError) -> dict[str, str]:
    """What a response to a request that ended in `error` says in its head, whatever the form of its body."""
    lines = dict[str, str]()
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


# From what was raised to the response.

_REPEATING = {
    "POST": "Repeat it, with the same Idempotency-Key if it had one.",
    "DELETE": "Repeat it: a 404 or 410 then says that it is deleted.",
}


def install(app: FastAPI) -> None:
    """Registers the handlers. What they do not know becomes a 500 in `api.middleware`."""
    app.add_exception_handler(EmbedqError, _ours)
    app.add_exception_handler(CallerGone, _ours)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _frameworks)


def response(error: EmbedqError | CallerGone, scope: Scope, path: str) -> Response:
    """The answer to the request of `scope`, for `path`, which ended in `error`."""
    if isinstance(error, CallerGone):
        return Response(status_code=499)  # nginx's number. Nobody receives it; it shows in the metrics
    if isinstance(error, NotReplicated):
        told = f"{error.detail} {_REPEATING.get(scope['method'], '')}".rstrip()
        error = NotReplicated(told, retry_after_s=error.retry_after_s)
    # Never the error itself: its traceback holds the frames that hold the scope. Of such cycles a flood of refused
    # requests made 60,000 objects in five seconds, and the garbage collector stood in everybody's way for 130 ms.
    scope.setdefault("state", {})["error"] = error.code, error.retry_after_s
    if (path.rstrip("/") or "/") in TEI_PATHS:
        status, body = in_teis_form(error)
        return Response(orjson.dumps(body), status, headers(error), "application/json")
    return problem(error, instance=path)


def answered(scope: Scope) -> tuple[str, int | None] | None:
    """Code and `retry_after_s` of the error that answered the request of `scope`, if one did."""
    error: tuple[str, int | None] | None = scope.get("state", {}).get("error")
    return error


async def _ours(request: Request, error: Exception) -> Response:
    return response(cast("EmbedqError | CallerGone", error), request.scope, request.url.path)


async def _parameters(request: Request, error: Exception) -> Response:
    """A header or a query parameter that FastAPI has refused. Bodies are read by `api.dependencies`."""
    first = cast("ErrorDetails", cast("RequestValidationError", error).errors()[0])
    first["loc"] = first["loc"][1:]  # without where it stands: "query"
    return response(translated(first), request.scope, request.url.path)


async def _frameworks(request: Request, error: Exception) -> Response:
    """What Starlette and FastAPI refuse by themselves."""
    raised = cast("HTTPException", error)
    headers = dict(raised.headers or {})
    asks = request.method == "OPTIONS" and "access-control-request-method" not in request.headers
    if asks and "Allow" in headers:  # as HAProxy asks for health; a web page that asks is refused
        answer = Response(status_code=HTTPStatus.NO_CONTENT)
    else:
        answer = response(_translated(raised, request), request.scope, request.url.path)
    if "Allow" in headers:
        methods = _methods(request) | set(headers["Allow"].split(", "))
        headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    answer.headers.update(headers)
    return answer


def _methods(request: Request) -> set[str]:
    # Starlette names only those of the first route with this path, and a path has a route for each of its methods.
    scope = request.scope
    tried = ({**scope, "method": method} for method in ("GET", "POST", "PUT", "PATCH", "DELETE"))
    routes = request.app.routes
    return {one["method"] for one in tried if any(route.matches(one)[0] is Match.FULL for route in routes)}


def _translated(error: HTTPException, request: Request) -> EmbedqError:
    where = f"{request.method} {request.url.path}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NotFound("route_not_found", f"There is no {where}. {_hint(request.url.path)}")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return Refused("method_not_allowed", f"{where} is not possible; the Allow header names the methods that are.")
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return Refused("body_too_large", "The body is larger than this call may have.")
    if error.status_code == HTTPStatus.BAD_REQUEST:
        return Invalid("invalid_value", f"The body cannot be read: {error.detail}")
    return InternalError("Something unexpected happened while the request was routed.")


def _hint(path: str) -> str:
    if path.startswith("/v1/v1"):
        return "The client adds /v1 itself: give it the base address without /v1."
    if path.rstrip("/") == "/v1" or path.startswith("/v1/embed/"):
        return "Clients of text-embeddings-inference take the base address without /v1, those of OpenAI with it."
    return "See /openapi.json for what there is."

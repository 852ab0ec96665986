"""The one place that turns an exception into a response. Routes raise and never format."""

from collections.abc import Sequence
from functools import partial
from typing import cast

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from api import tei
from api.failures import CallerGone
from api.problem import problem
from tasks.errors import EmbedqError, InternalError, MethodNotAllowed, RouteNotFound

CLIENT_CLOSED_REQUEST = 499
"""nginx's number. Nobody receives it; it shows in the metrics."""


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Registers the handlers. What they do not know becomes a 500 in `api.edge`.

    Args:
        app: where they are registered.
        routes: all that have methods which a 405 must name.
    """
    app.add_exception_handler(EmbedqError, _ours)
    app.add_exception_handler(HTTPException, partial(_routing, routes))
    app.add_exception_handler(CallerGone, _ours)


def response(error: EmbedqError | CallerGone, path: str) -> Response:
    """The answer to a request for `path` that ended in `error`."""
    if isinstance(error, CallerGone):
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return tei.failure(error) if path in tei.PATHS else problem(error, instance=path)


async def _ours(request: Request, error: Exception) -> Response:
    return response(cast("EmbedqError | CallerGone", error), request.url.path)


async def _routing(routes: Sequence[BaseRoute], request: Request, error: Exception) -> Response:
    raised = cast("HTTPException", error)
    answer = response(_translated(raised, request), request.url.path)
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

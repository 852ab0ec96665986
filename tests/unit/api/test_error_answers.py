"""Errors as answers: what they leave behind, and those of the framework."""

import gc
import weakref
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI, Response
from starlette.exceptions import HTTPException
from starlette.types import Scope

from api import error_responses
from tasks.errors import TooMany


class Held:
    """Something that the scope of a request holds."""


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def _refuse() -> None:
    raise TooMany("rate_limited", "Too many.", retry_after_s=3)


def _refused() -> tuple[weakref.ref[Held], tuple[str, int | None] | None]:
    """One request as a route refuses it."""
    held = Held()
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/embeddings", "held": held}
    try:
        _refuse()
    except TooMany as error:
        error_responses.response(error, scope, scope["path"])
    return weakref.ref(held), error_responses.answered(scope)


@pytest.mark.usefixtures("_no_collector")
def test_a_refused_request_is_freed_when_it_is_answered() -> None:
    held, noted = _refused()
    assert (held(), noted) == (None, ("rate_limited", 3))


async def _refused_by_framework(status: int) -> Response:
    raise HTTPException(status)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/things/413", 413, "body_too_large"),
        ("POST", "/v1/things/400", 400, "invalid_value"),
        ("PUT", "/v1/things/400", 405, "method_not_allowed"),
        ("GET", "/v1/things/a", 400, "invalid_value"),
        ("GET", "/v1/nothing", 404, "route_not_found"),
    ],
)
async def test_what_the_framework_refuses_has_the_same_form(method: str, path: str, status: int, code: str) -> None:
    app = FastAPI()
    for one in ("GET", "POST"):
        app.add_api_route("/v1/things/{status}", _refused_by_framework, methods=[one])
    error_responses.install(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
        answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("allow") == ("GET, HEAD, POST" if code == "method_not_allowed" else None)

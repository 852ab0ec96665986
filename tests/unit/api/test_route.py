"""A route and its description: what is not described cannot be read, and what is described is in FastAPI's form."""

from collections.abc import Callable, Mapping

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from api.answer.description import Answer, ResponseHeader, header, query
from api.families.route import PUBLIC, DescribedRoute, Family, NotDescribed
from tasks.errors import RangeNotSatisfiable, Unauthenticated, WaitTimeout

TOYS = Family("toys", bare=True)


@TOYS.describe(
    "GET",
    "/v1/toys/{place}/{name}",
    Answer(200, dict[str, str], headers=(ResponseHeader("X-Toy", "Its colour.", required=True),)),
    Answer(204, description="It is gone."),
    scopes=PUBLIC,
    errors=(Unauthenticated, WaitTimeout, RangeNotSatisfiable),
    reads=(header("X-Colour", "Which one.", example="red"), query("size", {"type": "integer"}, "How large.")),
    slash=True,
)
async def read_toy(request: Request, place: str, name: str) -> Response:
    """Answers with one header or one query parameter of the request."""
    values: Mapping[str, str] = request.headers if place == "header" else request.query_params
    many = request.headers.getlist(name) if place == "header" else request.query_params.getlist(name)
    assert (name in values, values.get(name), len(many)) == (bool(many), many[0] if many else None, len(many))
    return Response(values.get(name))


def routes() -> dict[str, DescribedRoute]:
    return {route.path: route for route in TOYS.routes if isinstance(route, DescribedRoute)}


async def answer(place: str, name: str) -> bytes:
    headers = [(b"x-colour", b"red"), (b"accept", b"text/plain"), (b"x-secret", b"a")]
    scope = {"type": "http", "headers": headers, "query_string": b"size=3&weight=4"}
    response = await routes()["/v1/toys/{place}/{name}"].function(Request(scope), place, name)
    return bytes(response.body)


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [("header", "x-colour", b"red"), ("header", "X-Colour", b"red"), ("header", "accept", b"text/plain"),
     ("header", "content-type", b""), ("query", "size", b"3")],
)  # fmt: skip
async def test_what_is_described_can_be_read(place: str, name: str, value: bytes) -> None:
    assert await answer(place, name) == value


async def test_of_a_header_that_came_twice_the_first_counts_and_both_can_be_read() -> None:
    async def function(request: Request) -> Response:
        headers = request.headers
        return Response(" ".join([headers["x-colour"], headers.get("X-Colour", ""), *headers.getlist("x-colour")]))

    described = routes()["/v1/toys/{place}/{name}"].described
    route = DescribedRoute("GET", "/toy", function, described, "toys", shown=True)
    headers = [(b"x-colour", b"red"), (b"accept", b"a"), (b"x-colour", b"blue")]
    response = await route.function(Request({"type": "http", "headers": headers, "query_string": b""}))
    assert bytes(response.body) == b"red red red blue"


@pytest.mark.parametrize(
    ("place", "name"),
    [("header", "x-secret"), ("header", "size"), ("header", "absent"), ("query", "weight"), ("query", "x-colour")],
)
@pytest.mark.parametrize("read", ["[]", "get", "getlist", "in"])
async def test_what_is_not_described_cannot_be_read(place: str, name: str, read: str) -> None:
    async def function(request: Request) -> Response:
        values = request.headers if place == "header" else request.query_params
        by: dict[str, Callable[[str], object]] = {
            "[]": values.__getitem__,
            "get": values.get,
            "getlist": values.getlist,
            "in": values.__contains__,
        }
        return Response(str(by[read](name)))

    described = routes()["/v1/toys/{place}/{name}"].described
    route = DescribedRoute("GET", "/toy", function, described, "toys", shown=True)
    with pytest.raises(NotDescribed, match=name):
        await route.function(Request({"type": "http", "headers": [], "query_string": b"weight=4"}))


def test_aliases_answer_and_are_not_shown() -> None:
    assert {path: route.include_in_schema for path, route in routes().items()} == {
        "/v1/toys/{place}/{name}": True,
        "/v1/toys/{place}/{name}/": False,
        "/toys/{place}/{name}": False,
        "/toys/{place}/{name}/": False,
    }


def test_a_description_in_the_form_of_fastapi() -> None:
    route = routes()["/v1/toys/{place}/{name}"]
    assert (route.status_code, route.response_class) == (200, JSONResponse)
    assert route.openapi_extra == {
        "parameters": [
            {
                "name": "X-Colour",
                "in": "header",
                "required": False,
                "schema": {"type": "string"},
                "description": "Which one.",
                "example": "red",
            },
            {
                "name": "size",
                "in": "query",
                "required": False,
                "schema": {"type": "integer"},
                "description": "How large.",
            },
        ]
    }
    headers = {status: set(response.get("headers", ())) for status, response in route.responses.items()}
    assert headers == {
        200: {"X-Toy"},
        204: set(),
        "4XX": {"Retry-After", "WWW-Authenticate", "x-should-retry"},
        "5XX": {"Retry-After", "x-should-retry"},
    }
    assert list(route.responses["4XX"]["content"]) == ["application/problem+json"]

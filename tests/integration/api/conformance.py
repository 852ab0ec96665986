"""Holds answers against the descriptions of their routes: a status or a header that is not described fails."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx

from api.answer import errors
from api.app import FAMILIES
from api.families.route import DescribedRoute

SERVER_WIDE = {"host_not_allowed", "origin_not_allowed", "invalid_http", "internal_error", "route_not_found"}
"""Errors that a request can meet before it reaches its route, and the 500 of a defect."""

PLAIN = {
    "access-control-allow-credentials", "access-control-allow-origin", "access-control-expose-headers",
    "cache-control", "connection", "content-encoding", "content-length", "content-security-policy", "content-type",
    "cross-origin-opener-policy", "cross-origin-resource-policy", "date", "referrer-policy", "server",
    "transfer-encoding", "vary",
    "x-content-type-options",
}  # fmt: skip
"""Headers that belong to HTTP, to browsers and to proxies rather than to one route."""

ONCE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "frame-ancestors 'none'",
    "cache-control": "",
}
"""Headers of every answer, each once, and what their values contain."""


def described_routes() -> Iterator[DescribedRoute]:
    """Every route of a family, aliases too."""
    for family in FAMILIES:
        yield from (route for route in family.router.routes if isinstance(route, DescribedRoute))


def route_of(request: httpx.Request) -> DescribedRoute | None:
    """The route that answers a request, if it is described."""
    method = "GET" if request.method == "HEAD" else request.method
    path = re.sub("^/+", "/", request.url.path)
    routes = (route for route in described_routes() if method in (route.methods or ()))
    return next((route for route in routes if route.path_regex.match(path)), None)


@dataclass(slots=True)
class Conformance:
    """Checks answers and remembers which described headers came.

    Attributes:
        seen: method and path of a route, status and name of a header; "" stands for the answer itself.
    """

    seen: set[tuple[str, str, int, str]] = field(default_factory=set)

    def check(self, answer: httpx.Response) -> None:
        """Fails unless the answer's status and headers are those of its route's description.

        Answers of every route, also of none, must have the headers that protect browsers.
        """
        for name, value in ONCE.items():
            (only,) = answer.headers.get_list(name)
            assert value in only, f"{answer.request.method} {answer.request.url.path}: {name}: {only}"
        route = route_of(answer.request)
        if route is None or self._is_server_wide(answer):
            return
        where = f"{answer.request.method} {route.path}: {answer.status_code}"
        responses = {int(status): response for status, response in route.responses.items()}
        assert answer.status_code in responses, f"{where} is not described"
        described = responses[answer.status_code].get("headers", {})
        allowed = {"x-request-id", *(name.lower() for name in described)}
        required = {"x-request-id", *(name.lower() for name, header in described.items() if header.get("required"))}
        present = {name for name in answer.headers if name not in PLAIN}
        assert required <= present, f"{where} is without {required - present}"
        assert present <= allowed, f"{where} has headers that are not described: {present - allowed}"
        for method in route.methods or ():
            self.seen |= {(method, route.path_format, answer.status_code, name) for name in ("", *present)}

    @staticmethod
    def _is_server_wide(answer: httpx.Response) -> bool:
        if answer.status_code < 400 or answer.status_code == 500:
            return answer.status_code == 500
        if answer.status_code == 403 and answer.request.url.path in errors.PATHS:
            return True  # TEI's form of an error has no code
        answer.read()
        found = re.search(rb'"code":"(\w+)"', answer.content)
        return found is not None and found[1].decode() in SERVER_WIDE

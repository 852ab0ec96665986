"""Routes without the framework's request machinery: a route here takes the request and returns the response itself.

FastAPI still documents them. Resolving dependencies and validating declared parameters, of which these routes have
none, cost more than the whole rest of a small request.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response


class DirectRoute(APIRoute):
    """Calls its function with the request and the parts of the path that it names."""

    @property
    def function(self) -> Callable[..., Awaitable[Response]]:
        """What answers: called with the request and the parts of the path."""
        return cast("Callable[..., Awaitable[Response]]", self.endpoint)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Called by FastAPI once per route."""
        function = self.function
        names = tuple(self.param_convertors)

        async def handle(request: Request) -> Response:
            return await function(request, *(request.path_params[name] for name in names))

        return handle


def direct_router(*, tag: str, prefix: str = "") -> APIRouter:
    """A router of such routes."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=DirectRoute)

"""The short way to a route: paths without parameters are found in a table, before the framework sees the request.

On the framework's way through its layers and its router, a small request spends a third of its processor time. Whatever
is not in the table takes that way and behaves as the framework says.
"""

from collections.abc import Callable, Mapping, Sequence

from fastapi import FastAPI
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import error_responses
from api.error_responses import CallerGone
from api.families.route import DirectRoute
from api.openapi import DocumentedApp
from tasks.errors import EmbedqError

Shortcuts = Mapping[tuple[str, str], ASGIApp]
"""By method and path."""


class App(DocumentedApp):
    """The application with shortcuts in front.

    Attributes:
        shortcuts: serve the requests they fit; set once the routes are known.
    """

    shortcuts: Shortcuts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] == "http":
            if scope["path"].startswith("//"):
                # Of base addresses that end with a slash; servers of OpenAI's and TEI's kind take them.
                scope["path"] = "/" + scope["path"].lstrip("/")
            if scope["method"] == "HEAD":
                # A server drops the bodies of answers by the method of its own scope; apps see a GET.
                scope, send = {**scope, "method": "GET"}, _head_of(send)
            short = self.shortcuts.get((scope["method"], scope["path"]))
            if short is not None:
                await short(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _head_of(send: Send) -> Send:
    ended = False

    async def send_head(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})  # not after the body, which may be endless
            ended = True
        elif not ended:
            await send(message)

    return send_head


def make_shortcuts(
    app: FastAPI, routes: Sequence[BaseRoute], edge: Callable[[ASGIApp], ASGIApp], admit: Callable[[ASGIApp], ASGIApp]
) -> Shortcuts:
    """Those of the routes that can be told by method and path alone.

    Args:
        app: the application, which the routes may ask for.
        routes: all that there are.
        edge: the outermost layer.
        admit: lets web pages call them, too.
    """
    fixed = [route for route in routes if isinstance(route, DirectRoute) and not route.param_convertors]
    return {
        (method, route.path): edge(admit(_Shortcut(app, route))) for route in fixed for method in route.methods or ()
    }


class _Shortcut:
    """One route as an ASGI app."""

    def __init__(self, app: FastAPI, route: DirectRoute) -> None:
        self._app = app
        self._route = route
        self._function = route.function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"], scope["route"] = self._app, self._route
        try:
            response = await self._function(Request(scope, receive))
        except (EmbedqError, CallerGone) as error:
            response = error_responses.response(error, scope, scope["path"])
        await response(scope, receive, send)

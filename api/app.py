"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from api.answer import errors
from api.document import openapi
from api.families import (
    batches,
    console,
    dataset_contents,
    dataset_map,
    datasets,
    embeddings,
    files,
    health,
    ingestions,
    jobs,
    key_purge,
    keys,
    models,
    service,
    tasks,
    tei,
)
from api.families.route import answer_headers
from api.server.edge import Edge
from api.server.origins import admit
from api.services import Services
from api.waiting.hub import WaitingTimes
from worker_config.settings import Settings

FAMILIES = (
    embeddings,
    tasks,
    files,
    batches,
    ingestions,
    jobs,
    datasets,
    dataset_contents,
    dataset_map,
    models,
    service,
    keys,
    key_purge,
    tei,
    health,
    console,
    openapi,
)
"""Whoever has routes, in the order of the document. Of two routes that fit a path the first one answers."""


class App(FastAPI):
    """FastAPI with this service's document. HEAD works wherever GET does."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, made once. FastAPI's own lacks our forms of errors and the security scheme."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.make_document(self)
        return self.openapi_schema

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] == "http":
            if scope["path"].startswith("//"):
                # Of base addresses that end with a slash; servers of OpenAI's and TEI's kind take them.
                scope["path"] = "/" + scope["path"].lstrip("/")
            if scope["method"] == "HEAD":
                # A server drops the bodies of answers by the method of its own scope; apps see a GET.
                scope, send = {**scope, "method": "GET"}, _head_of(send)
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


def create_app(
    settings: Settings,
    process: int | None = None,
    times: WaitingTimes = WaitingTimes(),
) -> App:
    """The ASGI app. It connects to Redis when its lifespan starts, and starts without Redis too.

    `process`: which of several behind one port this is.
    """
    services = Services.build(settings, process, times)

    @asynccontextmanager
    async def lifespan(_app: App) -> AsyncIterator[Mapping[str, Any]]:
        app.state.reference = openapi.Reference.from_document(app.openapi())
        background = await services.start()
        if services.watchdog.mismatch is not None:
            raise services.watchdog.mismatch  # a process that served would be replaced for ever
        yield {"send_home": services.send_home}
        await services.stop(background)

    # A redirect to the other form of a path would lose the body in some clients; both forms are routes instead.
    app = App(
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Its spans would have the path and the query, where callers write texts. Ours are in worker_config/traces.py.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.services = services
    routers = [family.router for family in FAMILIES]
    for router in routers:
        app.include_router(router)
    routes = [route for router in routers for route in router.routes]
    errors.install(app, routes)
    pages = partial(admit, origins=settings.cors_origins, readable=answer_headers(routes))
    app.add_middleware(pages)
    edge = partial(
        Edge,
        metrics=services.metrics,
        visitors=services.visitors,
        access_log=settings.access_log,
        traces=services.traces,
    )
    app.add_middleware(edge)  # the last one added is the outermost
    return app

"""The application: routes, error handlers and the outermost layer around the services of one process."""

from functools import partial
from inspect import signature

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from starlette.routing import request_response
from starlette.types import ASGIApp

from api import error_responses, openapi, pages
from api.browser_rules import BrowserRules
from api.load_limits import RATE_LIMIT_HEADERS
from api.middleware import Paths, Requests
from api.parts import add_parts, running
from api.routes import (
    batches,
    datasets,
    embeddings,
    files,
    health,
    ingestions,
    jobs,
    keys,
    models,
    service,
    tasks,
    tei,
)
from api.services.service import VERSION
from api.waiting.subscription import WaitingTimes
from worker_config.settings import Settings

ROUTERS = (embeddings, tasks, tei, files, batches, ingestions, jobs, datasets, models, service, keys, health)
"""By resource, in the order of the document; those of small requests first, because each route before one costs it."""


READABLE = (
    *("accept-ranges", "content-disposition", "content-range", "etag", "location", "openai-processing-ms"),
    *("retry-after", "www-authenticate", "x-request-id", "x-should-retry"),
    *RATE_LIMIT_HEADERS,
)
"""Headers of answers that a page of another origin may read."""


def create_app(
    settings: Settings,
    process: int | None = None,
    times: WaitingTimes = WaitingTimes(),
) -> openapi.DocumentedApp:
    """The ASGI app. It connects to Redis when its lifespan starts, and starts without Redis too.

    `process`: which of several behind one port this is.
    """
    # A redirect to the other form of a path would lose the body in some clients; `Paths` gives a path its one form.
    app = openapi.DocumentedApp(
        lifespan=running,
        redirect_slashes=False,
        title="embedq",
        version=VERSION,
        summary="Text embeddings off the web tier.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Its spans have the path and the query, where callers write texts. Ours are in worker_config/telemetry.py.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    add_parts(app.state, settings, process, times)
    for resource in ROUTERS:
        _add_routes(app, resource.router)
    app.add_document()
    pages.add_pages(app)
    error_responses.install(app)
    _add_layers(app, settings)
    return app


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    # `include_router` does the same, and each router costs every request some 8 us: the last one of them 95.
    for route in router.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name
            route.responses = {**openapi.RESPONSES, **route.responses}
            if [*signature(route.endpoint).parameters] == ["request"]:
                # FastAPI has nothing to find for it, and takes 75 us for that: Starlette calls it.
                route.app = request_response(route.endpoint)
    app.router.routes.extend(router.routes)


def _add_layers(app: FastAPI, settings: Settings) -> None:
    app.add_middleware(
        Requests,
        metrics=app.state.metrics,
        rules=BrowserRules(settings, lambda: app.state.keys.may_be_open),
        cors=partial(_readable, settings) if settings.cors_origins else lambda app: app,
        access_log=settings.access_log,
    )
    app.add_middleware(Paths)  # the last one added is the outermost


def _readable(settings: Settings, app: ASGIApp) -> ASGIApp:
    # Cookies are never asked for: keys come in headers that a page must have. Any header may be sent, as OpenAI's
    # client in a browser sends a dozen of its own.
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "HEAD", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=sorted(READABLE),
    )

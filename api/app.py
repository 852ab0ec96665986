"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from api.answer import errors
from api.document import openapi
from api.families import (
    batches,
    console,
    dataset_contents,
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
from api.server.fast_path import App, make_shortcuts
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
    async def lifespan(_app: App) -> AsyncIterator[None]:
        app.state.reference = openapi.Reference.from_document(app.openapi())
        background = await services.start()
        yield
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
    app.shortcuts = make_shortcuts(app, routes, edge, pages)
    return app

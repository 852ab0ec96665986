"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi.routing import APIRoute

from api import error_responses, openapi
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
from api.middleware import Paths
from api.parts import Services
from api.routes import tasks as tasks_routes
from api.server.edge import Edge
from api.server.fast_path import App, make_shortcuts
from api.server.origins import admit
from api.services.tasks import TaskService
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
)
"""Whoever has routes, in the order of the document. Of two routes that fit a path the first one answers."""


ROUTERS = (tasks_routes,)
"""By resource, in the order of the document."""


def _name(route: APIRoute) -> str:
    return route.name


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
        app.openapi()  # now: nobody shall wait for it in a request
        background = await services.start()
        yield
        await services.stop(background)

    # A redirect to the other form of a path would lose the body in some clients; both forms are routes instead.
    app = App(
        lifespan=lifespan,
        redirect_slashes=False,
        title="embedq",
        version="0.1.0",
        summary="Text embeddings off the web tier.",
        responses=error_responses.RESPONSES,
        docs_url=None,
        redoc_url=None,
        # Its spans would have the path and the query, where callers write texts. Ours are in worker_config/traces.py.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.services = services
    app.state.tasks = TaskService(services.ledger, services.registry, settings)
    for resource in ROUTERS:
        app.include_router(resource.router, generate_unique_id_function=_name)
    for family in FAMILIES:
        app.include_router(family.router)
    routes = [route for family in FAMILIES for route in family.router.routes]
    openapi.add_page(app)
    error_responses.install(app)
    pages = partial(admit, origins=settings.cors_origins)
    app.add_middleware(pages)
    edge = partial(
        Edge,
        metrics=services.metrics,
        visitors=services.visitors,
        access_log=settings.access_log,
        traces=services.traces,
    )
    app.add_middleware(edge)
    app.add_middleware(Paths)  # the last one added is the outermost
    app.shortcuts = make_shortcuts(app, routes, edge, pages)
    return app

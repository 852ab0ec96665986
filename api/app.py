"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi.routing import APIRoute

from api.answer import errors
from api.document import openapi
from api.families import (
    console,
    dataset_contents,
    dataset_map,
    datasets,
    embeddings,
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
from api.middleware import Paths
from api.parts import Services
from api.routes import batches, files
from api.routes import tasks as tasks_routes
from api.server.edge import Edge
from api.server.fast_path import App, make_shortcuts
from api.server.origins import admit
from api.services.batches import BatchService
from api.services.files import FileService
from api.services.tasks import TaskService
from api.waiting.hub import WaitingTimes
from worker_config.settings import Settings

FAMILIES = (
    embeddings,
    tasks,
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


ROUTERS = (tasks_routes, files, batches)
"""By resource, in the order of the document."""


def _add_services(app: App, parts: Services) -> None:
    app.state.settings = parts.settings
    app.state.storage = parts.storage
    app.state.tasks = TaskService(parts.ledger, parts.registry, parts.settings)
    app.state.files = FileService(parts.ledger, parts.storage, parts.settings)
    app.state.batches = BatchService(parts.ledger, parts.registry, parts.settings)


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
    _add_services(app, services)
    for resource in ROUTERS:
        app.include_router(resource.router, responses=errors.RESPONSES, generate_unique_id_function=_name)
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
    app.add_middleware(edge)
    app.add_middleware(Paths)  # the last one added is the outermost
    app.shortcuts = make_shortcuts(app, routes, edge, pages)
    return app

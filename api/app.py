"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi.routing import APIRoute

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
    models,
    service,
    tasks,
    tei,
)
from api.families.route import answer_headers
from api.middleware import Paths
from api.parts import Services
from api.routes import keys as keys_routes
from api.routes import tasks as tasks_routes
from api.server.edge import Edge
from api.server.fast_path import App, make_shortcuts
from api.server.origins import admit
from api.services.keys import KeyService
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
    tei,
    health,
    console,
    openapi,
)
"""Whoever has routes, in the order of the document. Of two routes that fit a path the first one answers."""


ROUTERS = (tasks_routes, keys_routes)
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
    app.state.keys, app.state.rates = services.keys, services.rates
    app.state.door, app.state.places = services.door, services.places
    app.state.key_service = KeyService(services.keys, services.ledger, services.storage)
    app.state.tasks = TaskService(services.ledger, services.registry, settings)
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

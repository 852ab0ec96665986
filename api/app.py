"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute

from api import console_files, error_responses, openapi
from api.families import embeddings, tasks, tei
from api.middleware import Paths, Requests
from api.parts import Services
from api.routes import batches, datasets, files, health, ingestions, jobs, models, service
from api.routes import keys as keys_routes
from api.routes import tasks as tasks_routes
from api.services.batches import BatchService
from api.services.datasets import DatasetService
from api.services.files import FileService
from api.services.ingestions import IngestionService
from api.services.jobs import JobService
from api.services.keys import KeyService
from api.services.service import VERSION, ServiceInfo
from api.services.tasks import TaskService
from api.waiting.hub import WaitingTimes
from api.waiting.synchronous import embed_query
from worker_config.settings import Settings

FAMILIES = (embeddings, tasks, tei)
"""Whoever has routes, in the order of the document. Of two routes that fit a path the first one answers."""


ROUTERS = (tasks_routes, files, batches, ingestions, jobs, datasets, models, service, keys_routes, health)
"""By resource, in the order of the document."""


READABLE = (
    *("accept-ranges", "content-disposition", "content-range", "etag", "location", "openai-processing-ms"),
    *("retry-after", "www-authenticate", "x-request-id", "x-should-retry"),
    *(f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
)
"""Headers of answers that a page of another origin may read."""


def _name(route: APIRoute) -> str:
    return route.name


def create_app(
    settings: Settings,
    process: int | None = None,
    times: WaitingTimes = WaitingTimes(),
) -> openapi.DocumentedApp:
    """The ASGI app. It connects to Redis when its lifespan starts, and starts without Redis too.

    `process`: which of several behind one port this is.
    """
    services = Services.build(settings, process, times)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        app.openapi()  # now: nobody shall wait for it in a request
        background = await services.start()
        if services.watchdog.mismatch is not None:
            raise services.watchdog.mismatch  # a process that served would be replaced for ever
        yield {"send_home": services.send_home}
        await services.stop(background)

    # A redirect to the other form of a path would lose the body in some clients; both forms are routes instead.
    app = openapi.DocumentedApp(
        lifespan=lifespan,
        redirect_slashes=False,
        title="embedq",
        version=VERSION,
        summary="Text embeddings off the web tier.",
        responses=error_responses.RESPONSES,
        docs_url=None,
        redoc_url=None,
        # Its spans would have the path and the query, where callers write texts. Ours are in worker_config/traces.py.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.services = services
    app.state.settings = settings
    app.state.storage = services.storage
    app.state.keys, app.state.rates = services.keys, services.rates
    app.state.door, app.state.places = services.door, services.places
    app.state.key_service = KeyService(services.keys, services.ledger, services.storage)
    app.state.tasks = TaskService(services.ledger, services.registry, settings)
    app.state.datasets = DatasetService(
        services.datasets, services.storage, services.registry, partial(embed_query, services), settings.max_wait_s
    )
    app.state.service = ServiceInfo(services.ledger, services.registry, services.storage, settings)
    app.state.metrics = services.metrics
    app.state.files = FileService(services.ledger, services.storage, settings)
    app.state.batches = BatchService(services.ledger, services.registry, settings)
    app.state.ingestions = IngestionService(services.ledger, services.registry, services.storage, settings)
    app.state.jobs = JobService(services.ledger, services.registry)
    for resource in ROUTERS:
        app.include_router(resource.router, generate_unique_id_function=_name)
    routers = [family.router for family in FAMILIES]
    for router in routers:
        app.include_router(router)
    app.add_api_route("/console", console_files.page, response_class=FileResponse, include_in_schema=False)
    app.mount("/console", console_files.ConsoleFiles())
    openapi.add_page(app)
    error_responses.install(app)
    if settings.cors_origins:
        # Cookies are never asked for: keys come in headers that a page must have. Any header may be sent, as OpenAI's
        # client in a browser sends a dozen of its own.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "HEAD", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=sorted(READABLE),
        )
    app.add_middleware(
        Requests,
        metrics=services.metrics,
        rules=services.rules,
        access_log=settings.access_log,
        traces=services.traces,
    )
    app.add_middleware(Paths)  # the last one added is the outermost
    return app

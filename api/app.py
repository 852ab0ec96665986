"""The application: routes, error handlers and the outermost layer around the services of one process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from api import error_responses, openapi, pages
from api.middleware import Paths, Requests
from api.process import Process
from api.request_limits import RATE_LIMIT_HEADERS, ListTurns
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
from api.services.batches import BatchService
from api.services.datasets import DatasetService
from api.services.embeddings import EmbeddingService
from api.services.files import FileService
from api.services.ingestions import IngestionService
from api.services.jobs import JobService
from api.services.keys import KeyService
from api.services.service import VERSION, ServiceInfo
from api.services.tasks import TaskService
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
    parts = Process.build(settings, process, times)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        app.openapi()  # now: nobody shall wait for it in a request
        background = await parts.start()
        if parts.ledger_watch.mismatch is not None:
            raise parts.ledger_watch.mismatch  # a process that served would be replaced for ever
        yield {"send_home": parts.send_home}
        await parts.stop(background)

    # A redirect to the other form of a path would lose the body in some clients; `Paths` gives a path its one form.
    app = openapi.DocumentedApp(
        lifespan=lifespan,
        redirect_slashes=False,
        title="embedq",
        version=VERSION,
        summary="Text embeddings off the web tier.",
        docs_url=None,
        redoc_url=None,
        # Its spans would have the path and the query, where callers write texts. Ours are in worker_config/traces.py.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    _add_services(app, parts, settings)
    for resource in ROUTERS:
        _add_routes(app, resource.router)
    pages.add_pages(app)
    error_responses.install(app)
    _add_layers(app, parts, settings)
    return app


def _add_routes(app: FastAPI, router: APIRouter) -> None:
    # `include_router` does the same, and each router costs every request some 8 us: the last one of them 95.
    for route in router.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name
            route.responses = {**openapi.RESPONSES, **route.responses}
    app.router.routes.extend(router.routes)


def _add_services(app: FastAPI, process: Process, settings: Settings) -> None:
    app.state.process = process
    app.state.settings = settings
    app.state.storage = process.storage
    app.state.keys, app.state.rates = process.keys, process.rates
    app.state.in_flight = process.in_flight
    app.state.key_service = KeyService(process.keys, process.ledger, process.storage)
    new_tasks = process.new_tasks
    app.state.embeddings = EmbeddingService(new_tasks, process.calls, process.models, process.rates, settings)
    app.state.tasks = TaskService(
        process.ledger,
        new_tasks=new_tasks,
        submitter=process.submitter,
        subscription=process.subscription,
        models=process.models,
        settings=settings,
    )
    app.state.datasets = DatasetService(
        process.datasets, process.storage, process.models, process.calls.embed_query, settings.max_wait_s
    )
    app.state.service = ServiceInfo(process.ledger, process.models, process.storage, settings)
    app.state.metrics = process.metrics
    app.state.bodies, app.state.answers = process.bodies, process.answers
    app.state.list_turns = ListTurns()
    app.state.files = FileService(process.ledger, process.storage, settings)
    app.state.batches = BatchService(process.ledger, process.models, settings)
    app.state.ingestions = IngestionService(process.ledger, process.models, process.storage, settings)
    app.state.jobs = JobService(process.ledger, process.models)


def _add_layers(app: FastAPI, process: Process, settings: Settings) -> None:
    app.add_middleware(
        Requests,
        metrics=process.metrics,
        rules=process.rules,
        cors=partial(_readable, settings) if settings.cors_origins else lambda app: app,
        access_log=settings.access_log,
        traces=process.traces,
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

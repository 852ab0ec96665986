"""Probes and metrics. All three are open, also where API keys are needed."""

from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer
from api.answer.json_response import NO_STORE, json_response
from api.families.route import PUBLIC, Family
from api.parts import Services
from api.queue.metrics import CONTENT_TYPE
from tasks.errors import EmbedqError, NotReady, Overloaded
from tasks.ledger import operations


class Live(BaseModel):
    """The process is alive."""

    status: Literal["live"]


class Ready(BaseModel):
    """A worker with a loaded model beats."""

    status: Literal["ready"]
    redis: Literal["up"]
    workers: dict[str, int]
    storage: str | None = Field(
        description="What keeps a role from the storage, and what to do. Work that needs it waits; queries do not."
    )


router = Family("health")


@router.describe("GET", "/health/live", Answer(200, Live), scopes=PUBLIC, slash=True)
async def live(_request: Request) -> Response:
    """Answers 200 while the process's event loop turns. No other process is asked."""
    return json_response({"status": "live"}, NO_STORE)


@router.describe("GET", "/health/ready", Answer(200, Ready), scopes=PUBLIC, errors=(NotReady,), slash=True)
async def ready(request: Request) -> Response:
    """Answers 200 while a worker with a loaded model beats; otherwise 503 names the missing part."""
    services = Services.from_request(request)
    try:
        services.registry.update(await services.ledger.run(operations.overview(services.registry.own_model)))
    except Overloaded:
        pass  # the answer came and was not read in time: what was known a second ago holds
    except EmbedqError as error:
        services.registry.lost()
        raise NotReady(error.detail, param="redis", retry_after_s=2) from None
    workers = services.registry.live_workers()
    if not workers:
        raise NotReady(
            "No worker with a loaded model is up. Submitted tasks are kept and wait for one.",
            param="worker",
            retry_after_s=5,
        )
    storage = await services.storage.trouble() or services.registry.storage_trouble() or None
    return json_response({"status": "ready", "redis": "up", "workers": workers, "storage": storage}, NO_STORE)


@router.describe("GET", "/metrics", Answer(200, media_types=("text/plain",)), scopes=PUBLIC)
async def metrics(request: Request) -> Response:
    """Returns all series in Prometheus's text format."""
    return Response(Services.from_request(request).metrics.render(), headers={"content-type": CONTENT_TYPE})

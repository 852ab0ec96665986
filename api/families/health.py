"""Probes and metrics. All three are open, also where API keys are needed."""

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.document.answers import Live, Ready
from api.queue.metrics import CONTENT_TYPE
from api.server.direct import direct_router
from api.services import Services
from tasks.errors import EmbedqError, NotReady, Overloaded
from tasks.ledger import operations

router = direct_router(tag="health")

_JSON = "application/json"


@router.get("/health/live", responses={200: {"model": Live}})
@router.get("/health/live/", include_in_schema=False)
async def live(_request: Request) -> Response:
    """The process runs and its event loop turns. Asks nobody else."""
    return Response(b'{"status":"live"}', media_type=_JSON, headers={"cache-control": "no-store"})


@router.get("/health/ready", responses={200: {"model": Ready}})
@router.get("/health/ready/", include_in_schema=False)
async def ready(request: Request) -> Response:
    """200 while a worker with a loaded model beats; otherwise 503 naming the missing part."""
    services = Services.of(request)
    try:
        services.registry.update(await services.ledger.run(operations.overview(services.registry.own_model)))
    except Overloaded:
        pass  # the answer came and was not read in time: what was known a second ago holds
    except EmbedqError:
        services.registry.lost()
        raise NotReady("Redis does not answer.", param="redis", retry_after_s=2) from None
    workers = services.registry.live_workers()
    if not workers:
        raise NotReady(
            "No worker with a loaded model is up. Submitted tasks are kept and wait for one.",
            param="worker",
            retry_after_s=5,
        )
    body = {"status": "ready", "redis": "up", "workers": workers}
    return Response(orjson.dumps(body), media_type=_JSON, headers={"cache-control": "no-store"})


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """All series in Prometheus's text format."""
    return Response(Services.of(request).metrics.render(), headers={"content-type": CONTENT_TYPE})

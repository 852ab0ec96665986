"""Probes and metrics. All three are open, also where API keys are needed."""

from fastapi import APIRouter, Response

from api.dependencies import Series, Service
from api.metrics import CONTENT_TYPE
from api.schemas.service import Live, Ready

router = APIRouter(tags=["health"])


@router.get("/health/live")
async def live() -> Live:
    """Answers 200 while the process's event loop turns. No other process is asked."""
    return Live()


@router.get("/health/ready")
async def ready(service: Service) -> Ready:
    """Answers 200 while a worker with a loaded model beats; otherwise 503 names the missing part."""
    return await service.ready()


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(series: Series) -> Response:
    """Returns all series in Prometheus's text format."""
    return Response(series.render(), headers={"content-type": CONTENT_TYPE})

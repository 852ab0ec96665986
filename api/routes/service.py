"""The service itself: models, workers and queues as they are now."""

from fastapi import APIRouter

from api.auth import Reader
from api.dependencies import Service
from api.schemas.service import RedisChecks, ServiceState

router = APIRouter(prefix="/v1/service", tags=["service"])


@router.get("")
async def read_service(_key: Reader, service: Service) -> ServiceState:
    """Returns models, workers and queues as they were about a second ago. No other process is asked."""
    return service.state()


@router.get("/redis")
async def check_redis(_key: Reader, service: Service) -> RedisChecks:
    """Asks Redis whether accepted work is safe in it, and says what to change."""
    return await service.redis_checks()

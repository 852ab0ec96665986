"""The service itself: models, workers and queues as they are now."""

from fastapi import APIRouter

from api.auth import Operator, Reader
from api.dependencies import Service
from api.schemas.service import RedisChecks, ServiceState

router = APIRouter(prefix="/v1/service", tags=["service"])


@router.get("")
async def read_service(key: Reader, service: Service) -> ServiceState:
    """Returns models, workers and queues as they were about a second ago. Hosts and others' work need `operate`."""
    return await service.state(key)


@router.get("/redis")
async def check_redis(_key: Operator, service: Service) -> RedisChecks:
    """Asks Redis whether accepted work is safe in it, and says what to change."""
    return await service.redis_checks()

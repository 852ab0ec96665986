"""The models: OpenAI's list, with what a worker said of each."""

from fastapi import APIRouter

from api.auth import AnyKey
from api.dependencies import Service
from api.schemas.models import Model, ModelList

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("")
async def list_models(_key: AnyKey, service: Service) -> ModelList:
    """Lists every model that a worker has ever served here, and the configured one."""
    return ModelList(data=service.models())


@router.get("/{model_id:path}")
async def read_model(_key: AnyKey, service: Service, model_id: str) -> Model:
    """Returns one model. Its id may contain slashes."""
    return service.model(model_id)

"""The models: OpenAI's list, with what a worker said of each."""

import time
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.document.answers import Model, ModelList
from api.queue.served_models import Registry
from api.server.direct import direct_router
from api.services import Services

router = direct_router(tag="models")

_JSON = "application/json"
_STARTED_AT = int(time.time())
_FACTS = ("dimension", "max_tokens", "device", "compute", "precision", "revision")
"""Of `ModelEntry`: what a worker said when it loaded the model."""


@router.get("/v1/models", responses={200: {"model": ModelList}})
@router.get("/v1/models/", include_in_schema=False)
@router.get("/models", include_in_schema=False)
@router.get("/models/", include_in_schema=False)
async def list_models(request: Request) -> Response:
    """Every model that a worker has ever served here, and the configured one."""
    services = Services.of(request)
    services.owner(request)
    data = [_model(services.registry, name) for name in services.registry.names()]
    return Response(orjson.dumps({"object": "list", "data": data}), media_type=_JSON)


@router.get("/v1/models/{model_id:path}", responses={200: {"model": Model}})
@router.get("/models/{model_id:path}", include_in_schema=False)
async def read_model(request: Request, model_id: str) -> Response:
    """One model; its id may contain slashes."""
    services = Services.of(request)
    services.owner(request)
    name = model_id.removesuffix("/")
    services.registry.served(name)
    return Response(orjson.dumps(_model(services.registry, name)), media_type=_JSON)


def _model(registry: Registry, name: str) -> dict[str, Any]:
    served = registry.served(name)
    entry = served.entry
    workers = registry.live_workers().get(served.name, 0)
    facts = {fact: getattr(entry, fact, None) for fact in _FACTS}
    return {
        "id": name,
        "object": "model",
        "created": entry.created_at if entry else _STARTED_AT,
        "owned_by": "embedq",
        "alias_of": None if name == served.name else served.name,
        **facts,
        "prompts": list(entry.prompts) if entry else None,
        "workers": workers,
        "ready": workers > 0,
    }

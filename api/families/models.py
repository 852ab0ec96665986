"""The models: OpenAI's list, with what a worker said of each."""

import time
from typing import Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer
from api.answer.json_response import json_response
from api.families.route import ANY_KEY, Family
from api.parts import Services
from api.queue.served_models import ServedModels
from tasks import errors


class Model(BaseModel):
    """A model. What a worker has not told yet is null."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    alias_of: str | None = Field(description="The canonical name, where this is another name for that model.")
    dimension: int | None = Field(description="Length of its vectors; null until a worker has loaded it.")
    max_tokens: int | None = Field(description="Longest input in tokens, special ones included.")
    device: str | None
    compute: str | None
    precision: str | None
    prompts: list[str] | None
    query_prompt: str | None = Field(description="The one of prompts that stands before queries.")
    document_prompt: str | None = Field(description="The one of prompts that stands before documents.")
    similarity: Literal["cosine", "dot", "euclidean", "manhattan"] | None = Field(
        description="How its vectors are compared, as the model's author has it."
    )
    revision: str | None
    workers: int = Field(description="Live workers that serve it.")
    ready: bool = Field(description="Whether there is one.")


class ModelList(BaseModel):
    """All models."""

    object: Literal["list"]
    data: list[Model]


router = Family("models", bare=True)

_STARTED_AT = int(time.time())
_FACTS = (
    *("dimension", "max_tokens", "device", "compute", "precision", "revision"),
    *("query_prompt", "document_prompt", "similarity"),
)
"""Of `ModelEntry`: what a worker said when it loaded the model."""


@router.describe("GET", "/v1/models", Answer(200, ModelList), scopes=ANY_KEY, slash=True)
async def list_models(request: Request) -> Response:
    """Lists every model that a worker has ever served here, and the configured one."""
    services = Services.from_request(request)
    services.owner(request)
    data = [_model(services.registry, name) for name in services.registry.names()]
    return json_response({"object": "list", "data": data})


@router.describe(
    "GET", "/v1/models/{model_id:path}", Answer(200, Model), scopes=ANY_KEY, errors=(errors.ModelNotFound,)
)
async def read_model(request: Request, model_id: str) -> Response:
    """Returns one model. Its id may contain slashes."""
    services = Services.from_request(request)
    services.owner(request)
    name = model_id.removesuffix("/")
    services.registry.served(name)
    return json_response(_model(services.registry, name))


def _model(registry: ServedModels, name: str) -> dict[str, Any]:
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

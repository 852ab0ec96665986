"""The OpenAPI document, made from the routes and their descriptions, and the same as a page for people.

Both are made once, before anybody is served: that takes 60 ms.
"""

from dataclasses import dataclass
from typing import Any, Self, cast

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import SCHEMAS
from api.answer.errors import Problem, TEIError
from api.answer.json_response import JSON
from api.document.reference import POLICY, page
from api.families.route import SCOPES, DirectRoute
from tasks.records.api_keys import Scope

_KEY = "Needed where keys are set; the headers `api-key` and `x-api-key` do as well."
_NEVER = "Validation Error"
"""How FastAPI announces a validation of the path that nothing can fail."""
_REQUEST_ID = {"description": "Of the request, for the log.", "required": True, "schema": {"type": "string"}}
_PAGE_HEADERS = {"content-security-policy": POLICY}


def make_document(app: FastAPI) -> dict[str, Any]:
    """The whole document of an app whose routes are known."""
    document = get_openapi(
        title="embedq",
        version="0.1.0",
        summary="Text embeddings off the web tier.",
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for kind in (Problem, TEIError):
        _add(schemas, kind.model_json_schema(ref_template=SCHEMAS))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": _KEY}}
    components["headers"] = {"x-request-id": _REQUEST_ID}
    for methods in document["paths"].values():
        for operation in methods.values():
            _complete(operation, schemas)
    return document


def _complete(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    responses = operation["responses"]
    if responses.get("422", {}).get("description") == _NEVER:
        del responses["422"]
    scopes = operation.pop(SCOPES, None)
    if scopes is not None:
        # Each entry is a way in: without a key, where there are none, or with a key that has one of the scopes.
        ways = [[]] if len(scopes) == len(Scope) else [[scope] for scope in scopes]
        operation["security"] = [{}, *({"key": way} for way in ways)]
    for response in responses.values():
        response["headers"] = {
            **response.get("headers", {}),
            "x-request-id": {"$ref": "#/components/headers/x-request-id"},
        }
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "title" in content["schema"]:
            content["schema"] = _add(schemas, content["schema"])


def _add(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """Puts a schema and those within it among the named ones; returns the reference."""
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": SCHEMAS.format(model=schema["title"])}


# The document and its page over HTTP.

router = APIRouter(route_class=DirectRoute)


@dataclass(frozen=True, slots=True)
class Reference:
    """Both forms, ready to be sent."""

    document: bytes
    page: bytes

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """The OpenAPI document, and the page that is made from it."""
        return cls(orjson.dumps(document), page(document).encode())


@router.get("/openapi.json", include_in_schema=False)
async def read_document(request: Request) -> Response:
    """Open, also where API keys are needed."""
    return Response(_reference(request).document, media_type=JSON)


@router.get("/docs", include_in_schema=False)
async def read_docs(request: Request) -> Response:
    """One page that needs nothing else, so it works without a network. Open like the document itself."""
    return Response(_reference(request).page, media_type="text/html", headers=_PAGE_HEADERS)


def _reference(request: Request) -> Reference:
    return cast("Reference", request.app.state.reference)

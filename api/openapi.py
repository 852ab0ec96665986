"""The OpenAPI document: what the routes cannot say of themselves because they read their bodies by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from api.answers import Problem, TEIError
from api.header_docs import ASKED, said
from api.route_errors import error_responses

_KEY = "Needed where keys are set; the headers `api-key` and `x-api-key` do as well."
_SCHEMAS = "#/components/schemas/{model}"
_REQUEST_ID = {"description": "Of the request, for the log.", "required": True, "schema": {"type": "string"}}


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose JSON body is a `kind`, in which `null` counts as absent."""
    schema = kind.model_json_schema(ref_template=_SCHEMAS)
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if name not in required and {"type": "null"} not in field.get("anyOf", ()):
            said = {key: field.pop(key) for key in ("title", "description", "default") if key in field}
            schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **said}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """`openapi_extra` of a route with one optional query parameter."""
    return {
        "parameters": [{"name": name, "in": "query", "required": False, "schema": schema, "description": description}]
    }


def paging(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """One of the query parameters of a list. Empty ones count as absent there."""
    parameter: dict[str, Any] = query(name, schema, description)["parameters"][0]
    return parameter | {"allowEmptyValue": True}


FILE_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary", "minLength": 1},
                        "purpose": {"enum": ["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]},
                        "expires_after[anchor]": {"enum": ["created_at"]},
                        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
                    },
                }
            }
        },
    }
}
"""`openapi_extra` of an upload."""

FILE_PAGE: dict[str, Any] = {
    "parameters": [
        paging("purpose", {"type": "string"}, "Files of this purpose only."),
        paging("limit", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000}, "Files per page."),
        paging("order", {"enum": ["asc", "desc"], "default": "desc"}, "By time of creation."),
        paging("after", {"type": "string"}, "The last file of the page before."),
    ]
}
"""`openapi_extra` of the list of files."""


def describe(app: FastAPI) -> None:
    """Makes `/openapi.json` complete: every route's errors in the form they really have."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # FastAPI's documented way


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="embedq",
        version="0.1.0",
        summary="Text embeddings off the web tier.",
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for kind in (Problem, TEIError):
        _add(schemas, kind.model_json_schema(ref_template=_SCHEMAS))
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": _KEY}}
    components["headers"] = {"x-request-id": _REQUEST_ID}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete(f"{method.upper()} {path}", operation, error_responses(method, path), schemas)
    return document


def _complete(name: str, operation: dict[str, Any], failures: dict[str, Any], schemas: dict[str, Any]) -> None:
    if name in ASKED:
        operation["parameters"] = [*operation.get("parameters", ()), *ASKED[name]]
    responses = operation["responses"]
    responses.pop("422", None)  # FastAPI announces a validation that nothing can fail
    responses.update(failures)
    if "401" in failures:
        operation["security"] = [{}, {"key": []}]
    for status, response in responses.items():
        response["headers"] = {
            **response.get("headers", {}),
            **said(name, status),
            "x-request-id": {"$ref": "#/components/headers/x-request-id"},
        }
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "title" in content["schema"]:
            content["schema"] = _add(schemas, content["schema"])


def _add(schemas: dict[str, Any], schema: dict[str, Any]) -> dict[str, str]:
    """Puts a schema and those within it among the named ones; returns the reference."""
    schemas.update(schema.pop("$defs", {}))
    schemas[schema["title"]] = schema
    return {"$ref": _SCHEMAS.format(model=schema["title"])}

"""The OpenAPI document: what the routes cannot say of themselves because they read their bodies by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from api.answers import Problem
from api.problem import MEDIA_TYPE
from tasks import errors

_BODY_ERRORS = (errors.RequestError, errors.BodyTooLarge, errors.UnsupportedMediaType, errors.IdempotencyConflict)
_TASK_ERRORS = (errors.TaskNotFound, errors.TaskGone)
_UPLOAD_ERRORS = (
    errors.InvalidFile,
    errors.FileTooLarge,
    errors.UnsupportedMediaType,
    errors.QuotaExceeded,
    errors.StorageUnavailable,
)
_REF = {"$ref": "#/components/schemas/Problem"}


def json_body(kind: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose JSON body is a `kind`."""
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    """`openapi_extra` of a route with one optional query parameter."""
    return {
        "parameters": [{"name": name, "in": "query", "required": False, "schema": schema, "description": description}]
    }


def _optional(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return query(name, schema, description)["parameters"][0]  # type: ignore[no-any-return]  # it is one


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
        _optional("purpose", {"type": "string"}, "Files of this purpose only."),
        _optional("limit", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000}, "Files per page."),
        _optional("order", {"enum": ["asc", "desc"], "default": "desc"}, "By time of creation."),
        _optional("after", {"type": "string"}, "The last file of the page before."),
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
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs"))
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for kind in _errors_of(path, method):
                operation["responses"].setdefault(str(kind.status), _response(kind))
            if "requestBody" not in operation:
                operation["responses"].pop("422", None)  # FastAPI announces a validation that nothing can fail
    return document


def _errors_of(path: str, method: str) -> tuple[type[errors.EmbedqError], ...]:
    if path.startswith("/health/live") or path == "/metrics":
        return ()
    if path.startswith("/health"):
        return (errors.NotReady,)
    found: tuple[type[errors.EmbedqError], ...] = (errors.Unauthenticated, errors.RedisUnavailable)
    if "/files" in path:
        return found + _file_errors(path, method)
    if "/batches" in path:
        return found + _batch_errors(path, method)
    if "{task_id}" in path:
        found += _TASK_ERRORS
        if path.endswith("/result"):
            found += (errors.TaskNotFinished,)
        if path.endswith("/cancel"):
            found += (errors.TaskEnded,)
    elif method == "post":
        found += (*_BODY_ERRORS, errors.ModelNotFound)
    elif "{model_id" in path:
        found += (errors.ModelNotFound,)
    return found


def _file_errors(path: str, method: str) -> tuple[type[errors.EmbedqError], ...]:
    if path.endswith("/files"):
        return _UPLOAD_ERRORS if method == "post" else (errors.RequestError,)
    unknown = (errors.FileUnknown,)
    return (*unknown, errors.RangeNotSatisfiable) if path.endswith("/content") else unknown


def _batch_errors(path: str, method: str) -> tuple[type[errors.EmbedqError], ...]:
    if path.endswith("/batches"):
        return _BODY_ERRORS if method == "post" else (errors.RequestError, errors.BatchUnknown)
    return (errors.BatchUnknown, errors.BatchEnded) if path.endswith("/cancel") else (errors.BatchUnknown,)


def _response(kind: type[errors.EmbedqError]) -> dict[str, Any]:
    return {"description": kind.title, "content": {MEDIA_TYPE: {"schema": _REF}}}

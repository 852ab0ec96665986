"""The OpenAPI document: what the routes cannot say of themselves because they read their bodies by hand."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from api.answer import errors as tei
from api.answer.errors import MEDIA_TYPE, ItemFailed
from api.document.answers import Problem, TEIError
from tasks import errors

# Headers in the OpenAPI document: what each route reads of a request, and what it says in each answer.

_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 1}
_HEADER_DOCS_KEY = "Makes a repetition safe: the same key and body get the same object again."

Header = dict[str, Any]


def _asked(name: str, description: str, schema: Mapping[str, Any] = _TEXT, example: str | None = None) -> Header:
    shown = {} if example is None else {"example": example}
    return {"name": name, "in": "header", "required": False, "schema": schema, "description": description, **shown}


def _said(description: str, schema: Mapping[str, Any] = _TEXT, *, required: bool = False) -> Header:
    return {"description": description, "schema": schema, **({"required": True} if required else {})}


_LIMITED_KEY = {"type": "string", "minLength": 1, "maxLength": 255}
_WAIT = _asked("Prefer", "`wait=<seconds>` (RFC 7240). What makes no sense is ignored.", example="wait=1")

ASKED: Mapping[str, tuple[Header, ...]] = {
    "POST /v1/embeddings": (
        _asked(
            "Prefer",
            "`wait=<seconds>`, `respond-async`, or both: a task if the vectors are not there in time (RFC 7240).",
            example="respond-async",
        ),
        _asked("Idempotency-Key", f"{_HEADER_DOCS_KEY} Read with `respond-async` only.", example="run-42"),
    ),
    "POST /embed": (_WAIT,),
    "POST /": (_WAIT,),
    "POST /v1/tasks": (_asked("Idempotency-Key", _HEADER_DOCS_KEY, _LIMITED_KEY),),
    "POST /v1/batches": (_asked("Idempotency-Key", _HEADER_DOCS_KEY, _LIMITED_KEY),),
    "GET /v1/tasks/{task_id}": (
        _WAIT,
        _asked("If-None-Match", "The `ETag` that is known: the answer comes at the first change after it, else 304."),
    ),
    "GET /v1/tasks/{task_id}/events": (_asked("Last-Event-ID", "The state that is known; it is left out."),),
    "GET /v1/files/{file_id}/content": (_asked("Range", "One range of bytes.", example="bytes=0-0"),),
}
"""Parameters by method and path, as the document names them."""

_ETAG = _said("Version of the task.")
_RETRY_AFTER = _said("Seconds.", _SECONDS)
_OPEN = {"ETag": _said("Version of the task.", required=True), "Retry-After": _said("Seconds, while open.", _SECONDS)}
_APPLIED = {"Preference-Applied": _said("What of `Prefer` was done.")}
_RATE = {
    f"x-ratelimit-{what}-{unit}": _said(f"As OpenAI's, in {unit}.")
    for what in ("limit", "remaining", "reset")
    for unit in ("requests", "tokens")
}

_BY_STATUS: Mapping[str, Mapping[str, Header]] = {
    "202": {
        "Location": _said("Path of what was begun.", required=True),
        "Retry-After": _said("Seconds, while open.", _SECONDS),
    },
    "304": {"ETag": _said("Version of the task.", required=True)},
    "401": {"WWW-Authenticate": {"required": True, "schema": _TEXT}},
    "409": {
        "Retry-After": _said("Seconds, where a repetition can succeed.", _SECONDS),
        "x-should-retry": _said("What the status does not tell.", {"enum": ["true", "false"]}),
    },
    "416": {"Content-Range": _said("`bytes */` and the size.", required=True)},
    "429": {"Retry-After": _RETRY_AFTER},
    "503": {"Retry-After": _RETRY_AFTER},
}
_PIECE: Mapping[str, Header] = {"Content-Range": _said("Which bytes, of how many.", required=True)}
_BY_ANSWER: Mapping[str, Mapping[str, Header]] = {
    "POST /v1/embeddings 200": {
        "openai-processing-ms": _said("In the server.", {"type": "integer"}),
        **_RATE,
        **_APPLIED,
    },
    "POST /v1/embeddings 202": {**_OPEN, **_APPLIED},
    "POST /v1/tasks 202": _OPEN,
    "GET /v1/tasks/{task_id} 200": _OPEN,
    "POST /v1/tasks/{task_id}/cancel 200": _OPEN,
    "GET /v1/tasks/{task_id}/result 200": {"ETag": _ETAG},
    "GET /v1/files/{file_id}/content 206": _PIECE,
    "GET /v1/ingestions/{ingestion_id}/output/{name} 206": _PIECE,
}


def said(operation: str, status: str) -> dict[str, Header]:
    """The headers of an answer beside `x-request-id`. `operation`: method and path."""
    return {**_BY_STATUS.get(status, {}), **_BY_ANSWER.get(f"{operation} {status}", {})}


# Which errors each route of the OpenAPI document can answer with, beside the 500 of a defect.

Kinds = tuple[type[errors.EmbedqError], ...]

_CALLER: Kinds = (errors.Unauthenticated, errors.RedisUnavailable)
_BODY: Kinds = (
    *_CALLER,
    errors.RequestError,
    errors.BodyTooLarge,
    errors.UnsupportedMediaType,
    errors.Overloaded,
)
_REFUSED: Kinds = (errors.BacklogFull, errors.StorageFull)
_TEXTS: Kinds = (*_BODY, errors.ModelNotFound, errors.IdempotencyConflict, *_REFUSED)
_TASK: Kinds = (*_CALLER, errors.TaskNotFound, errors.TaskGone)
_FILE: Kinds = (*_CALLER, errors.FileUnknown)
_BATCH: Kinds = (*_CALLER, errors.BatchUnknown)
_INGESTION: Kinds = (*_CALLER, errors.IngestionUnknown)
_DATASET: Kinds = (errors.Unauthenticated, errors.DatasetUnknown, errors.StorageUnavailable)
_TEI: Kinds = (*_BODY, errors.EmptyInput, errors.EncodingFailed, errors.BacklogFull, ItemFailed)

ERRORS: Mapping[str, Kinds] = {
    "POST /v1/embeddings": (*_TEXTS, errors.TaskGone, errors.EncodingFailed, errors.NotReady, errors.WaitTimeout),
    "POST /v1/tasks": (*_TEXTS, errors.TaskGone),
    "GET /v1/tasks": (*_CALLER, errors.RequestError),
    "GET /v1/tasks/{task_id}": (*_TASK, errors.RequestError),
    "DELETE /v1/tasks/{task_id}": _TASK,
    "GET /v1/tasks/{task_id}/events": _TASK,
    "GET /v1/tasks/{task_id}/result": (*_TASK, errors.RequestError, errors.TaskNotFinished, errors.Overloaded),
    "POST /v1/tasks/{task_id}/cancel": (*_TASK, errors.TaskEnded),
    "POST /v1/files": (
        *_CALLER,
        errors.InvalidFile,
        errors.FileTooLarge,
        errors.UnsupportedMediaType,
        errors.QuotaExceeded,
        errors.StorageFull,
        errors.StorageUnavailable,
        errors.DiskFull,
    ),
    "GET /v1/files": (*_CALLER, errors.RequestError, errors.Overloaded),
    "GET /v1/files/{file_id}": _FILE,
    "DELETE /v1/files/{file_id}": (*_FILE, errors.StorageUnavailable),
    "GET /v1/files/{file_id}/content": (*_FILE, errors.RangeNotSatisfiable, errors.StorageUnavailable),
    "POST /v1/batches": (
        *_BODY,
        errors.IdempotencyConflict,
        errors.BatchUnknown,
        errors.TooManyBatches,
        errors.StorageFull,
    ),
    "GET /v1/batches": (*_BATCH, errors.RequestError),
    "GET /v1/batches/{batch_id}": _BATCH,
    "POST /v1/batches/{batch_id}/cancel": (*_BATCH, errors.BatchEnded),
    "POST /v1/ingestions": (
        *_BODY,
        errors.ModelNotFound,
        errors.FileUnknown,
        errors.IdempotencyConflict,
        errors.SourceFailed,
        errors.TooManyIngestions,
        errors.StorageFull,
        errors.StorageUnavailable,
        errors.DiskFull,
    ),
    "GET /v1/ingestions": (*_INGESTION, errors.RequestError),
    "GET /v1/ingestions/{ingestion_id}": _INGESTION,
    "GET /v1/ingestions/{ingestion_id}/documents": (*_INGESTION, errors.RequestError, errors.StorageUnavailable),
    "GET /v1/ingestions/{ingestion_id}/output": (*_INGESTION, errors.RequestError, errors.StorageUnavailable),
    "GET /v1/ingestions/{ingestion_id}/output/{name}": (
        *_INGESTION,
        errors.FileUnknown,
        errors.RequestError,
        errors.RangeNotSatisfiable,
        errors.StorageUnavailable,
    ),
    "POST /v1/ingestions/{ingestion_id}/cancel": (*_INGESTION, errors.IngestionEnded),
    "POST /v1/ingestions/{ingestion_id}/retry": (*_INGESTION, errors.IngestionEnded),
    "GET /v1/datasets": (errors.Unauthenticated, errors.RequestError, errors.StorageUnavailable),
    "GET /v1/datasets/{name}": _DATASET,
    "DELETE /v1/datasets/{name}": (*_DATASET, errors.DiskFull),
    "GET /v1/models": (errors.Unauthenticated,),
    "GET /v1/models/{model_id}": (errors.Unauthenticated, errors.ModelNotFound),
    "GET /": (),
    "POST /": _TEI,
    "POST /embed": _TEI,
    "GET /info": (errors.Unauthenticated, errors.NotReady),
    "GET /health": (errors.NotReady,),
    "GET /health/live": (),
    "GET /health/ready": (errors.NotReady,),
    "GET /metrics": (),
}
"""By method and path, as the document names them."""


def error_responses(method: str, path: str) -> dict[str, dict[str, Any]]:
    """The `responses` of one operation that tell errors, by status. Unknown routes have none."""
    form = "application/json" if path in tei.PATHS else MEDIA_TYPE
    schema = {"$ref": f"#/components/schemas/{'TEIError' if path in tei.PATHS else 'Problem'}"}
    titles: dict[int, list[str]] = {}
    for kind in ERRORS.get(f"{method.upper()} {path}", ()):
        status = tei.status(kind) if path in tei.PATHS else kind.status
        known = titles.setdefault(status, [])
        known += [kind.title] if kind.title not in known else []
    return {
        str(status): {"description": ", or: ".join(known), "content": {form: {"schema": schema}}}
        for status, known in sorted(titles.items())
    }


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

"""Headers in the OpenAPI document: what each route reads of a request, and what it says in each answer."""

from collections.abc import Mapping
from typing import Any

_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 1}
_KEY = "Makes a repetition safe: the same key and body get the same object again."

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
        _asked("Idempotency-Key", f"{_KEY} Read with `respond-async` only.", example="run-42"),
    ),
    "POST /embed": (_WAIT,),
    "POST /": (_WAIT,),
    "POST /v1/tasks": (_asked("Idempotency-Key", _KEY, _LIMITED_KEY),),
    "POST /v1/batches": (_asked("Idempotency-Key", _KEY, _LIMITED_KEY),),
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

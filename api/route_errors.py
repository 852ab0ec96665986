"""Which errors each route of the OpenAPI document can answer with, beside the 500 of a defect."""

from collections.abc import Mapping
from typing import Any

from api import tei
from api.failures import ItemFailed
from api.problem import MEDIA_TYPE
from tasks import errors

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

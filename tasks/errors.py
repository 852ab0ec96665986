"""Everything that can go wrong, as one tree. An error knows its HTTP status and its stable code.

    EmbedqError
    ├── RequestError            400  what the caller sent cannot be used
    │   ├── InvalidJSON, MissingParameter, UnknownParameter, InvalidType, InvalidValue, InvalidUnicode
    │   ├── EmptyInput, TooManyInputs, InputTooLarge, InputTooLong
    │   ├── BodyTooComplex, InvalidHTTP
    │   ├── BodyTooLarge        413
    │   ├── HeadTooLarge        431
    │   ├── RequestTimeout      408  the request did not come in time
    │   ├── HostRefused, OriginRefused 403
    │   ├── UnsupportedMediaType 415
    │   ├── IdempotencyConflict 422
    │   ├── Unauthenticated     401
    │   ├── ScopeMissing        403  the key is valid and may not do this
    │   ├── KeyUnknown          404
    │   ├── KeyExists           409  choose another name
    │   ├── KeyRevoked          409  never again
    │   ├── KeyInUse            409  when it is revoked and purged
    │   ├── RouteNotFound       404
    │   ├── MethodNotAllowed    405
    │   ├── ModelNotFound       404
    │   ├── TaskNotFound        404
    │   ├── TaskGone            410  it was known, its retention is over
    │   ├── TaskNotFinished     409  ask again later
    │   ├── TaskEnded           409  never again
    │   ├── BatchUnknown        404
    │   ├── BatchEnded          409  never again
    │   ├── BatchOpen           409  when it has ended
    │   ├── IngestionUnknown    404
    │   ├── IngestionEnded      409  never again
    │   ├── IngestionOpen       409  when it has ended
    │   ├── ModelChanged        409  its workers serve another revision now
    │   ├── SourceFailed        400  what an ingestion names cannot be listed
    │   ├── SinkRefused         400  a sink can never take what an ingestion makes
    │   │   └── SinkDimensionMismatch, SinkModelMismatch, DatasetDeleted
    │   ├── DatasetUnknown      404
    │   ├── DatasetModelMismatch 400 its vectors are of another model than the one that is to search it
    │   ├── TooManyBatches      429  when one has ended
    │   ├── TooManyIngestions   429  when one has ended
    │   ├── RateLimited         429  when some of the key's rate has come back
    │   ├── KeyLimitReached     429  when some of what the key has is done
    │   │   └── AboveKeyLimit        never
    │   ├── InvalidFile         400  an uploaded file cannot be what its purpose says
    │   ├── FileTooLarge        413
    │   ├── QuotaExceeded       403  the caller has stored as much as it may
    │   ├── FileUnknown         404
    │   ├── RangeNotSatisfiable 416
    │   └── EncodingFailed      422  the model could not turn this input into a vector
    ├── Unavailable             503  try again later
    │   ├── BacklogFull, Overloaded, StorageFull, RedisUnavailable (NotReplicated), NotReady, WaitTimeout
    │   ├── StorageUnavailable, DiskFull, SinkUnavailable
    ├── NotStored               500  a stored object is not where it should be
    ├── SchemaMismatch               another version's data is in this Redis (exit 78)
    └── InternalError           500

Routes and ledger operations raise these; `api.error_responses` alone turns them into responses. `detail` texts go to
clients: they name the field and the fix, and never contain a text that somebody submitted.
"""

from typing import ClassVar, Self


class EmbedqError(Exception):
    """Base of all errors of this project.

    Attributes:
        detail: one or two sentences for the caller.
        param: the field at fault, in the form `input[3]`; None when there is none.
        retry_after_s: seconds after which a repetition may succeed, 1 to 120; None when it makes no sense.
        should_retry: overrides what clients conclude from the status (header `x-should-retry`).
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    title: ClassVar[str] = "Internal error"
    should_retry: ClassVar[bool | None] = None

    def __init__(self, detail: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.param = param
        self.retry_after_s = retry_after_s


def reason(error: Exception) -> str:
    """For a log: what is unavailable and why. Of others the type alone, whose text may hold what somebody submitted."""
    return error.detail if isinstance(error, Unavailable) else type(error).__name__


class InternalError(EmbedqError):
    """A defect of ours."""


class RequestError(EmbedqError):
    """The request cannot be used as it is."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"
    title = "Invalid request"


class InvalidJSON(RequestError):
    """The body is not JSON, or not UTF-8."""

    code = "invalid_json"
    title = "The body is not valid JSON"


class MissingParameter(RequestError):
    """A required field is absent."""

    code = "missing_required_parameter"
    title = "A required field is missing"


class UnknownParameter(RequestError):
    """A field that a native route does not know."""

    code = "unknown_parameter"
    title = "Unknown field"


class InvalidType(RequestError):
    """A field has the wrong JSON type."""

    code = "invalid_type"
    title = "Wrong type"


class InvalidValue(RequestError):
    """A field has the right type and a value that cannot be."""

    code = "invalid_value"
    title = "Invalid value"


class InvalidUnicode(RequestError):
    """A string holds a lone surrogate or bytes that are not UTF-8."""

    code = "invalid_unicode"
    title = "Invalid Unicode"


class EmptyInput(RequestError):
    """No texts, or an empty one."""

    code = "empty_input"
    title = "Empty input"


class TooManyInputs(RequestError):
    """More texts than one request may carry."""

    code = "too_many_inputs"
    title = "Too many inputs"


class InputTooLarge(RequestError):
    """One text has more bytes than one text may have."""

    code = "input_too_large"
    title = "Input too large"


class InputTooLong(RequestError):
    """One text has more tokens than the model takes, and `truncate` is false."""

    code = "input_too_long"
    title = "Input too long"


class BodyTooLarge(RequestError):
    """The body exceeds the limit."""

    status = 413
    code = "body_too_large"
    title = "Body too large"


class BodyTooComplex(RequestError):
    """The body holds more lists, objects and fields than one request may."""

    code = "body_too_complex"
    title = "Body too complex"


class InvalidHTTP(RequestError):
    """What came is not a request of HTTP/1.1. The connection is closed."""

    code = "invalid_http"
    title = "Invalid HTTP"


class HeadTooLarge(RequestError):
    """The request's line and fields exceed the limit. The connection is closed."""

    status = 431
    code = "head_too_large"
    title = "Request head too large"


class RequestTimeout(RequestError):
    """The request's head or body did not come in time. The connection is closed."""

    status = 408
    code = "request_timeout"
    title = "Request timeout"


class HostRefused(RequestError):
    """Without keys, the server is called by a name that is not one of its own."""

    status = 403
    code = "host_not_allowed"
    title = "Host not allowed"
    should_retry = False


class OriginRefused(RequestError):
    """Without keys, a web page of another origin wants to change something."""

    status = 403
    code = "origin_not_allowed"
    title = "Origin not allowed"
    should_retry = False


class UnsupportedMediaType(RequestError):
    """The body's content type is not JSON."""

    status = 415
    code = "unsupported_media_type"
    title = "Unsupported media type"


class IdempotencyConflict(RequestError):
    """The same `Idempotency-Key` came with another body."""

    status = 422
    code = "idempotency_key_reused"
    title = "Idempotency key reused"


class Unauthenticated(RequestError):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"
    title = "Not authenticated"


class ScopeMissing(RequestError):
    """The key is valid, but none of its scopes allows this call."""

    status = 403
    code = "scope_missing"
    type = "permission_error"
    title = "The key lacks a scope"
    should_retry = False


class KeyUnknown(RequestError):
    """No API key has this name."""

    status = 404
    code = "key_not_found"
    title = "No such key"


class KeyExists(RequestError):
    """An API key, maybe a revoked one, has this name already."""

    status = 409
    code = "key_exists"
    title = "The key exists"
    should_retry = False


class KeyRevoked(RequestError):
    """The API key was revoked: nothing about it can change."""

    status = 409
    code = "key_revoked"
    title = "The key is revoked"
    should_retry = False


class KeyInUse(RequestError):
    """The API key can still be used, or its owner still has something."""

    status = 409
    code = "key_in_use"
    title = "The key is in use"
    should_retry = False


class RouteNotFound(RequestError):
    """No such path."""

    status = 404
    code = "route_not_found"
    title = "No such route"


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"
    title = "Method not allowed"


class ModelNotFound(RequestError):
    """No worker has ever served this model here, and it is not the configured one."""

    status = 404
    code = "model_not_found"
    title = "No such model"


class TaskNotFound(RequestError):
    """No task has this id."""

    status = 404
    code = "task_not_found"
    title = "No such task"


class TaskGone(RequestError):
    """The task existed; its retention is over."""

    status = 410
    code = "task_expired"
    title = "Task is past its retention"


class TaskNotFinished(RequestError):
    """The result was asked for before the end."""

    status = 409
    code = "task_not_finished"
    title = "Task has not finished"
    should_retry = True


class TaskEnded(RequestError):
    """The task has ended and cannot be cancelled any more."""

    status = 409
    code = "task_already_ended"
    title = "Task has already ended"
    should_retry = False


class BatchUnknown(RequestError):
    """No batch of the caller has this id."""

    status = 404
    code = "batch_not_found"
    title = "No such batch"


class BatchEnded(RequestError):
    """The batch has ended and cannot be cancelled any more."""

    status = 409
    code = "batch_already_ended"
    title = "Batch has already ended"
    should_retry = False


class BatchOpen(RequestError):
    """The batch has not ended, so it can be neither deleted nor tried again."""

    status = 409
    code = "batch_not_ended"
    title = "Batch has not ended"
    should_retry = False


class IngestionUnknown(RequestError):
    """The caller has no such ingestion."""

    status = 404
    code = "ingestion_not_found"
    title = "Unknown ingestion"


class IngestionEnded(RequestError):
    """It has ended, so it cannot be cancelled; or it has not, so it cannot be retried."""

    status = 409
    code = "ingestion_ended"
    title = "Ingestion ended"
    should_retry = False


class IngestionOpen(RequestError):
    """The ingestion has not ended, so it cannot be deleted."""

    status = 409
    code = "ingestion_not_ended"
    title = "Ingestion has not ended"
    should_retry = False


class ModelChanged(RequestError):
    """The model that a task or an ingestion began with is no longer served: its name stands for another one now."""

    status = 409
    code = "model_changed"
    title = "Model changed"


class SourceFailed(RequestError):
    """An ingestion cannot list its documents."""

    code = "source_failed"
    title = "Source cannot be read"


class SinkRefused(RequestError):
    """A sink can never take these vectors."""

    code = "sink_refused"
    title = "Sink refuses"


class SinkDimensionMismatch(SinkRefused):
    """A sink holds vectors of another dimension."""

    code = "sink_dimension_mismatch"
    title = "Sink holds other dimensions"


class SinkModelMismatch(SinkRefused):
    """A sink holds vectors of another model, revision or prompt: they cannot be compared with these."""

    code = "sink_model_mismatch"
    title = "Sink holds another model's vectors"


class DatasetDeleted(SinkRefused):
    """A dataset was deleted under an ingestion, which has taken some of its documents for loaded."""

    code = "dataset_deleted"
    title = "Dataset was deleted"


class DatasetUnknown(RequestError):
    """The caller has no such dataset."""

    status = 404
    code = "dataset_not_found"
    title = "No such dataset"


class DatasetModelMismatch(RequestError):
    """A dataset holds vectors of another model than the one that is to search it: they cannot be compared."""

    code = "dataset_model_mismatch"
    title = "Dataset holds another model's vectors"


class TooManyBatches(RequestError):
    """The caller has as many open batches as it may. Nothing was stored."""

    status = 429
    code = "too_many_batches"
    type = "rate_limit_error"
    title = "Too many open batches"


class TooManyIngestions(RequestError):
    """The caller has as many open ingestions as it may. Nothing was stored."""

    status = 429
    code = "too_many_ingestions"
    type = "rate_limit_error"
    title = "Too many open ingestions"


class RateLimited(RequestError):
    """The caller's key has used up its requests or tokens of the moment. Nothing was stored."""

    status = 429
    code = "rate_limited"
    type = "rate_limit_error"
    title = "The rate of your key is used up"


class KeyLimitReached(RequestError):
    """The caller has as much queued or open as its key may. Nothing was stored."""

    status = 429
    code = "key_limit"
    type = "rate_limit_error"
    title = "A limit of your key is reached"


class AboveKeyLimit(KeyLimitReached):
    """A single request has more tokens than the caller's key may have at all. Waiting does not help."""

    title = "The request exceeds a limit of your key"
    should_retry = False


class InvalidFile(RequestError):
    """An uploaded file cannot be what its purpose says."""

    code = "invalid_file_format"
    title = "Invalid file"


class FileTooLarge(RequestError):
    """An uploaded file has more bytes than one of its purpose may have."""

    status = 413
    code = "file_too_large"
    title = "File too large"


class QuotaExceeded(RequestError):
    """The caller's files are as many, or as large, as they may be. Not a 429: waiting does not help."""

    status = 403
    code = "quota_exceeded"
    title = "Quota exceeded"
    should_retry = False


class FileUnknown(RequestError):
    """No file of the caller has this id."""

    status = 404
    code = "file_not_found"
    title = "No such file"


class RangeNotSatisfiable(RequestError):
    """The Range header asks for bytes behind the end of the file, which has `size_bytes`."""

    status = 416
    code = "range_not_satisfiable"
    title = "Range not satisfiable"

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"The file has {size_bytes} bytes; the Range header asks for none of them.")
        self.size_bytes = size_bytes


class EncodingFailed(RequestError):
    """An input could not be turned into a vector; `item_code` is the item's own error code."""

    status = 422
    code = "encoding_failed"
    title = "An input could not be encoded"
    should_retry = False


class Unavailable(EmbedqError):
    """The service cannot do this now; a repetition may succeed."""

    status = 503
    code = "unavailable"
    type = "service_unavailable_error"
    title = "Temporarily unavailable"


class BacklogFull(Unavailable):
    """As much work as can be done in the allowed time is queued already. Nothing was stored.

    Attributes:
        wait_s: until there is room for one such request.
        before_s: of work that would be done before it.
    """

    code = "backlog_full"
    title = "Too much work is queued"

    def __init__(
        self, detail: str, *, retry_after_s: int | None = None, wait_s: float = 0, before_s: float = 0
    ) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.wait_s = wait_s
        self.before_s = before_s


class Overloaded(Unavailable):
    """More requests or larger bodies came than one process can handle. Nothing was stored, or the answer is lost."""

    code = "overloaded"
    title = "Too many requests at once"


class StorageFull(Unavailable):
    """Redis has no memory left for new tasks. Nothing was stored."""

    code = "storage_full"
    title = "Queue storage is full"

    @classmethod
    def of_queue(cls, retry_after_s: int) -> Self:
        """Redis itself has no memory left, whoever asks."""
        return cls("The queue's memory is full; try again later. Nothing was stored.", retry_after_s=retry_after_s)


class RedisUnavailable(Unavailable):
    """Redis does not answer."""

    code = "redis_unavailable"
    title = "The queue is not reachable"


class NotReplicated(RedisUnavailable):
    """It was written, but no replica confirmed it in time. It is there unless a failover comes now."""

    code = "not_replicated"
    title = "No replica has it yet"


class NotReady(Unavailable):
    """A part that is needed is missing."""

    code = "not_ready"
    title = "Not ready"


class WaitTimeout(Unavailable):
    """A synchronous call waited as long as it may; the work goes on for a short while and a retry joins it."""

    code = "wait_timeout"
    title = "Still working"
    should_retry = True


class StorageUnavailable(Unavailable):
    """The place of large things (`EMBEDQ_STORAGE_URL`) cannot be reached, or refuses."""

    code = "storage_unavailable"
    title = "The storage is not reachable"


class DiskFull(Unavailable):
    """The place of large things has no room left. Nothing was stored."""

    code = "disk_full"
    title = "The storage is full"


class SinkUnavailable(Unavailable):
    """A sink of an ingestion is down or full."""

    code = "sink_unavailable"
    title = "Sink unavailable"


class NotStored(EmbedqError):
    """A stored object is not where it should be: somebody else deleted it."""

    code = "not_stored"
    title = "Not in the storage"


class SchemaMismatch(EmbedqError):
    """This Redis holds data of another version of embedq."""

    code = "schema_mismatch"
    title = "Incompatible data"

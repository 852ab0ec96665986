"""Everything that can go wrong. An error knows its HTTP status and its stable code.

There is a class for what is caught by name, and one for each kind of answer; those have several codes, as data:
`raise NotFound("task_not_found", "No such task.", param="id")`. The table in `docs/http.md` explains every code.

    EmbedqError
    ├── RequestError            what the caller sent cannot be used
    │   ├── Invalid             400  what was sent is wrong
    │   ├── SourceFailed        400  what an ingestion names cannot be listed
    │   ├── Unauthenticated     401
    │   ├── Forbidden           403  valid, and not for this caller
    │   ├── NotFound            404
    │   ├── Conflict            409  not in this state: never again, or later
    │   ├── ModelChanged        409  its workers serve another revision now
    │   ├── TooMany             429  when some of what the key has is done, or some of its rate has come back
    │   ├── RangeNotSatisfiable 416  has the size of the file
    │   └── Refused             the others, each with a status of its own
    ├── Unavailable             503  try again later
    │   ├── BacklogFull, Overloaded, StorageFull, RedisUnavailable (NotReplicated, WrongRedis), NotReady, WaitTimeout
    │   └── StorageUnavailable, DiskFull, SinkUnavailable
    ├── NotStored               500  a stored object is not where it should be
    ├── SchemaMismatch               another version's data is in this Redis (exit 78)
    └── InternalError           500

Routes and ledger operations raise these; `api.error_responses` alone turns them into responses. `detail` texts go to
clients: they name the field and the fix, and never contain a text that somebody submitted.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self


class EmbedqError(Exception):
    """Base of all errors of this project.

    Attributes:
        status: of the HTTP answer.
        code: stable; programs are written against it.
        type: OpenAI's word for the kind of error.
        title: what the code means, in a few words.
        should_retry: overrides what clients conclude from the status (header `x-should-retry`).
        detail: one or two sentences for the caller.
        param: the field at fault, in the form `input[3]`; None when there is none.
        retry_after_s: seconds after which a repetition may succeed, 1 to 120; None when it makes no sense.
    """

    status: int = 500
    code: str = "internal_error"
    type: str = "server_error"
    title: str = "Internal error"
    should_retry: bool | None = None

    def __init__(self, detail: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.param = param
        self.retry_after_s = retry_after_s


class InternalError(EmbedqError):
    """A defect of ours."""


# What the caller sent.


class RequestError(EmbedqError):
    """The request cannot be used as it is."""

    status = 400
    code = "invalid_request"
    type = "invalid_request_error"
    title = "Invalid request"


class Code(NamedTuple):
    """What a code means. `status` and `type`: where they are not those of the class."""

    title: str
    should_retry: bool | None = None
    status: int | None = None
    type: str | None = None


class CodedError(RequestError):
    """One of several errors that are answered alike. `codes`: all of them."""

    codes: ClassVar[Mapping[str, Code]] = {}

    def __init__(self, code: str, detail: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(detail, param=param, retry_after_s=retry_after_s)
        meaning = self.codes[code]
        self.code = code
        self.title = meaning.title
        self.should_retry = meaning.should_retry
        self.status = meaning.status or self.status
        self.type = meaning.type or self.type


class Invalid(CodedError):
    """What was sent is wrong; the message names the field and the fix."""

    codes: ClassVar = {
        "invalid_json": Code("The body is not valid JSON"),
        "missing_required_parameter": Code("A required field is missing"),
        "unknown_parameter": Code("Unknown field"),
        "invalid_type": Code("Wrong type"),
        "invalid_value": Code("Invalid value"),
        "invalid_unicode": Code("Invalid Unicode"),
        "empty_input": Code("Empty input"),
        "too_many_inputs": Code("Too many inputs"),
        "input_too_large": Code("Input too large"),
        "body_too_complex": Code("Body too complex"),
        "invalid_http": Code("Invalid HTTP"),
        "invalid_file_format": Code("Invalid file"),
        # A sink can never take what an ingestion makes.
        "sink_refused": Code("Sink refuses"),
        "sink_dimension_mismatch": Code("Sink holds other dimensions"),
        "sink_model_mismatch": Code("Sink holds another model's vectors"),
        "dataset_deleted": Code("Dataset was deleted"),
        "dataset_model_mismatch": Code("Dataset holds another model's vectors"),
    }


class SourceFailed(RequestError):
    """An ingestion cannot list its documents."""

    code = "source_failed"
    title = "Source cannot be read"


class Unauthenticated(RequestError):
    """No key, or a wrong one."""

    status = 401
    code = "invalid_api_key"
    type = "authentication_error"
    title = "Not authenticated"


class Forbidden(CodedError):
    """The caller may not do this, however often it asks."""

    status = 403
    codes: ClassVar = {
        "scope_missing": Code("The key lacks a scope", should_retry=False, type="permission_error"),
        "host_not_allowed": Code("Host not allowed", should_retry=False),
        "origin_not_allowed": Code("Origin not allowed", should_retry=False),
        "quota_exceeded": Code("Quota exceeded", should_retry=False),  # not a 429: waiting does not help
    }


class NotFound(CodedError):
    """There is no such thing, or it is somebody else's."""

    status = 404
    codes: ClassVar = {
        "route_not_found": Code("No such route"),
        "model_not_found": Code("No such model"),
        "task_not_found": Code("No such task"),
        "file_not_found": Code("No such file"),
        "batch_not_found": Code("No such batch"),
        "ingestion_not_found": Code("Unknown ingestion"),
        "dataset_not_found": Code("No such dataset"),
        "key_not_found": Code("No such key"),
    }


class Conflict(CodedError):
    """Not in the state in which the thing is."""

    status = 409
    codes: ClassVar = {
        "key_exists": Code("The key exists", should_retry=False),
        "key_revoked": Code("The key is revoked", should_retry=False),
        "key_unreadable": Code("The key is of another version", should_retry=False),
        "key_in_use": Code("The key is in use", should_retry=False),
        "task_not_finished": Code("Task has not finished", should_retry=True),
        "task_already_ended": Code("Task has already ended", should_retry=False),
        "batch_already_ended": Code("Batch has already ended", should_retry=False),
        "batch_not_ended": Code("Batch has not ended", should_retry=False),
        "ingestion_ended": Code("Ingestion ended", should_retry=False),
        "ingestion_not_ended": Code("Ingestion has not ended", should_retry=False),
    }


class ModelChanged(RequestError):
    """The model that a task or an ingestion began with is no longer served: its name stands for another one now."""

    status = 409
    code = "model_changed"
    title = "Model changed"


class TooMany(CodedError):
    """The caller has as much queued or open as it may, or has used up its rate. Nothing was stored."""

    status = 429
    type = "rate_limit_error"
    codes: ClassVar = {
        "too_many_batches": Code("Too many open batches"),
        "too_many_ingestions": Code("Too many open ingestions"),
        "rate_limited": Code("The rate of your key is used up"),
        "key_limit": Code("A limit of your key is reached"),
    }


class Refused(CodedError):
    """Errors of the request with a status of their own."""

    codes: ClassVar = {
        "method_not_allowed": Code("Method not allowed", status=405),
        "request_timeout": Code("Request timeout", status=408),
        "task_expired": Code("Task is past its retention", status=410),
        "part_changed": Code("Part of a dataset has changed", status=410),
        "body_too_large": Code("Body too large", status=413),
        "file_too_large": Code("File too large", status=413),
        "unsupported_media_type": Code("Unsupported media type", status=415),
        "idempotency_key_reused": Code("Idempotency key reused", status=422),
        "head_too_large": Code("Request head too large", status=431),
    }


class RangeNotSatisfiable(RequestError):
    """The Range header asks for bytes behind the end of the file, which has `size_bytes`."""

    status = 416
    code = "range_not_satisfiable"
    title = "Range not satisfiable"

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"The file has {size_bytes} bytes; the Range header asks for none of them.")
        self.size_bytes = size_bytes


# What the service cannot do now.


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


class WrongRedis(RedisUnavailable):
    """No wait mends this Redis: its settings must be others, or EMBEDQ_REDIS_URL. A role does not start (exit 78)."""


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

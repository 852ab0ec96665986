"""Ingestions: documents in, vectors in a store out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.answer.content import CONTENT_ANSWERS, RANGE, content
from api.answer.description import Answer, json_body, query
from api.answer.json_response import NO_STORE, ListOf, Reason, Usage, json_response, list_json, unix_seconds
from api.answer.task_json import LOCATION, RETRY_AFTER
from api.answer.why_waiting import WAITING, Waiting, why_waiting
from api.families.ingestion_body import (
    SOURCE_KINDS,
    IngestionBody,
    Sink,
    SourceKind,
    check_again,
    check_body,
    require_known_fields,
)
from api.families.ingestion_results import FILTERS, DocumentQuery, output_json, part_tag, read_documents, read_output
from api.families.route import (
    CALLER,
    IDEMPOTENCY_KEY,
    INGESTION_MAKING,
    INGESTION_READING,
    JSON_BODY,
    Errors,
    Family,
    page_after,
    page_limit,
)
from api.parts import Services
from api.queue.served_models import ServedModels
from api.request.body import parse_object
from api.request.idempotency import checked_key, key_digests
from api.request.offload import offload_in_turn
from api.request.ownership import Resource, read_own, read_own_ids
from tasks import errors
from tasks.errors import FileUnknown, IngestionEnded, IngestionOpen, IngestionUnknown, RequestError, StorageFull
from tasks.item import Options
from tasks.records import datasets, ingestions
from tasks.records.api_keys import NO_LIMITS, Limits
from tasks.records.creation import RecordLimits
from tasks.records.files import Quota, read_files
from tasks.records.ingestion_operations import (
    cancel_ingestion,
    create_ingestion,
    delete_ingestion,
    list_ingestions,
    read_ingestion,
    read_ingestions,
    resume_ingestion,
    retry_ingestion,
)
from tasks.records.ingestions import FOLDER, IngestionStatus, NewIngestion, is_ingestion_id, new_ingestion_id
from tasks.wire.embeddings_body import check_options
from tasks.wire.validation import validated
from worker_config.settings import Settings

# An ingestion from the body of a request, and as JSON.

INGESTIONS = Resource(
    "ingestion",
    is_ingestion_id,
    read_ingestion,
    IngestionUnknown,
    "POST /v1/ingestions",
    is_deleted=lambda ingestion: ingestion.deleted,
)
_URLS_SHOWN = 10
_OPTIONS = ("dimensions", "prompt_name", "input_type", "metadata", "on_conflict")


@dataclass(frozen=True, slots=True)
class IngestionRequest:
    """What a `POST /v1/ingestions` asks for.

    Attributes:
        files: ids of uploads that it names.
        listed: the files, URLs or documents as a JSON list, to be stored under `stored`.
    """

    ingestion: NewIngestion
    files: Sequence[str]
    stored: str
    listed: bytes

    @classmethod
    def from_body(
        cls,
        body: bytes,
        *,
        owner: str,
        idempotency_key: str | None,
        settings: Settings,
        registry: ServedModels,
        limits: Limits = NO_LIMITS,
    ) -> Self:
        """The ingestion that a body describes. `limits`: of the owner's key.

        Raises:
            RequestError: the subclass that says what is wrong with the body or the key.
            RedisUnavailable: which models there are is not known yet.
        """
        fields = parse_object(body)
        require_known_fields(fields)
        parsed = validated(IngestionBody, fields)
        served = registry.served(parsed.model)
        check_body(parsed, settings, served.entry.max_tokens if served.entry else None, limits)
        check_options(Options(parsed.prompt_name, parsed.dimensions), served.name, served.entry)
        ingestion_id = new_ingestion_id()
        place = "inline" if parsed.source.documents is not None else "listed"
        stored = f"{FOLDER}/{ingestion_id}/{place}.json"
        ingestion = NewIngestion(
            id=ingestion_id,
            owner=owner,
            spec=_spec(parsed, served.name) | {place: stored} | _rights(parsed.sink, limits),
            ttl_ms=round(settings.batch_ttl_s * 1000),
            key=key_digests(checked_key(idempotency_key), body),
        )
        files = [file.id for file in parsed.source.files or ()]
        return cls(ingestion, files, stored, orjson.dumps(parsed.source.listed()[1]))


def ingestion_json(ingestion: ingestions.Ingestion, waiting: dict[str, Any] | None = None) -> dict[str, Any]:
    """The ingestion object. Times are Unix seconds. `waiting`: as in `why_waiting`."""
    counts, spec, rate = ingestion.counts, ingestion.spec, ingestion.rate
    started = [at for status, at in ingestion.times.items() if status != "queued"]
    return {
        "id": ingestion.id,
        "object": "ingestion",
        "status": ingestion.status.value,
        "created_at": ingestion.created_ms // 1000,
        "started_at": min(started) // 1000 if started else None,
        "finished_at": unix_seconds(ingestion.finished_ms),
        "expires_at": unix_seconds(ingestion.expires_ms),
        "model": ingestion.model,
        "source": _source(spec),
        "chunking": spec["chunking"],
        "sink": spec["sink"],
        "mode": spec["mode"],
        "dry_run": ingestion.dry_run,
        "metadata": spec.get("metadata") or {},
        "file_counts": _document_counts(counts),
        "listing_complete": ingestion.listing_complete,
        "chunks": {
            "total": counts.chunks,
            "embedded": counts.chunks_embedded,
            "loaded": counts.chunks_loaded,
            "tokens": counts.chunk_tokens,
        },
        "usage": {"prompt_tokens": counts.tokens, "total_tokens": counts.tokens},
        "rate": rate
        and {"documents_per_s": round(rate.documents_per_s, 2), "chunks_per_s": round(rate.chunks_per_s, 2)},
        "eta_s": None if ingestion.eta_s is None else round(ingestion.eta_s, 1),
        "estimate_s": ingestion.estimate_s,
        "error": {"code": ingestion.error.code, "message": ingestion.error.message} if ingestion.error else None,
        "waiting_for": ingestion.waiting_for,
        "waiting": waiting,
        "resumable": ingestion.resumable,
        "warnings": [ingestion.warning] if ingestion.warning else [],
    }


def _document_counts(counts: ingestions.Counts) -> dict[str, int]:
    return {
        "total": counts.documents,
        "in_progress": counts.in_progress,
        "completed": counts.loaded + counts.unchanged,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "unchanged": counts.unchanged,
        "deleted": counts.deleted,
        "replaced": counts.replaced,
        "emptied": counts.emptied,
    }


def _source(spec: Mapping[str, Any]) -> dict[str, Any]:
    source = spec["source"]
    kind = next(name for name in SOURCE_KINDS if source.get(name) is not None)
    given = {name: source[name] for name in ("fields", "format", "records") if source.get(name) is not None}
    shown = {"urls": spec["urls_shown"]} if "urls_shown" in spec else {}
    return {"type": kind, "count": source[kind], **shown, **given}


def _spec(body: IngestionBody, model: str) -> dict[str, Any]:
    kind, listed = body.source.listed()
    # Every step and every poll reads the spec: ten thousand ids of files have no place in it.
    source = body.source.model_dump(exclude_none=True, exclude=set[str](SOURCE_KINDS)) | {kind: len(listed)}
    if body.source.fields and body.source.fields.metadata == ["*"]:
        source["fields"]["metadata"] = "*"
    options = {name: value for name in _OPTIONS if (value := getattr(body, name)) is not None}
    return {
        "source": source,
        "chunking": body.chunking.model_dump(exclude_none=True) if body.chunking else {"type": "auto"},
        "sink": body.sink.model_dump(exclude_none=True) if body.sink else {"type": "parquet"},
        "mode": body.mode,
        "model": model,
        "normalize": body.normalize,
        **({"dry_run": True} if body.dry_run else {}),
        **({"urls_shown": listed[:_URLS_SHOWN]} if kind == "urls" else {}),
        **options,
    }


def _rights(sink: Sink | None, limits: Limits) -> dict[str, Any]:
    """What workers, who know no keys, must know of the rights of the owner's key."""
    shares = sink is not None and limits.shares_table(sink.name or "", sink.table or "")
    return ({} if limits.roots is None else {"roots": limits.roots}) | ({"shares_table": True} if shares else {})


# The answers as pydantic models. They document; `ingestion_json` and its like render, which is several times faster.


class DocumentCounts(BaseModel):
    """Documents, by what became of them: completed ones are loaded, or were there unchanged."""

    total: int = Field(description="Known so far; all of them once listing_complete.")
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    unchanged: int = Field(description="Of the completed ones.")
    deleted: int = Field(description="Of earlier ingestions, taken away by the mode sync; not in total.")
    replaced: int = Field(description="Of the completed ones: an earlier ingestion had another content under this id.")
    emptied: int = Field(description="Of the completed ones: they have no text any more, and lost their chunks.")


class ChunkCounts(BaseModel):
    """Chunks, by how far they are, and their tokens."""

    total: int
    embedded: int
    loaded: int
    tokens: int


class SourceShown(BaseModel):
    """What was asked for, without the list of files or documents."""

    type: SourceKind
    count: int
    urls: list[str] | None = Field(None, description="The first 10 of them.")
    fields: dict[str, Any] | None = None
    format: str | None = None
    records: bool | None = None


class Rate(BaseModel):
    """Of the last half minute or so; of the whole once it has ended."""

    documents_per_s: float
    chunks_per_s: float = Field(description="Embedded; in a dry run, cut.")


class Ingestion(BaseModel):
    """An ingestion. Times are Unix seconds."""

    id: str = Field(examples=["ing_019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["ingestion"]
    status: Literal["queued", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled"]
    created_at: int
    started_at: int | None
    finished_at: int | None
    expires_at: int | None = Field(description="When this record is deleted; null while it is open.")
    model: str
    source: SourceShown
    chunking: dict[str, Any]
    sink: dict[str, Any]
    mode: Literal["skip_unchanged", "upsert", "sync"]
    dry_run: bool
    metadata: dict[str, str]
    file_counts: DocumentCounts
    listing_complete: bool
    chunks: ChunkCounts
    usage: Usage
    rate: Rate | None
    eta_s: float | None = Field(description="Seconds to the end; null while that is unknown.")
    estimate_s: float | None = Field(description="Of a dry run: how long the model would take.")
    error: Reason | None
    waiting_for: str | None = Field(description="model, sink, storage or worker, while it cannot go on without.")
    waiting: Waiting | None = WAITING
    resumable: bool = Field(description="It has failed through no fault of its request: retry goes on where it was.")
    warnings: list[str] = Field(description="What its owner should know of the vectors.")


class DeletedIngestion(BaseModel):
    """Confirms that an ingestion is deleted."""

    id: str
    object: Literal["ingestion"]
    deleted: Literal[True]


class IngestionList(ListOf[Ingestion]):
    """A page of ingestions, the newest first."""


class IngestionDocument(BaseModel):
    """One document of an ingestion."""

    id: str
    object: Literal["ingestion.document"]
    source_uri: str
    status: Literal["queued", "parsing", "embedding", "loading", "loaded", "unchanged", "failed", "counted"]
    stage: str | None = Field(description="Of a failed one: where.")
    last_error: Reason | None
    content_hash: str | None
    chunks: int
    tokens: int


class IngestionDocumentList(BaseModel):
    """Some documents, in the order of the source."""

    object: Literal["list"]
    data: list[IngestionDocument]
    last_id: str | None = Field(description="Value of `after` for the next page; no id of a document.")
    has_more: bool


class OutputPart(BaseModel):
    """One Parquet file."""

    object: Literal["ingestion.part"]
    name: str = Field(examples=["part-000003.parquet"])
    rows: int
    documents: int
    bytes: int
    etag: str
    url: str


class Output(BaseModel):
    """The Parquet files of a dataset as it is now."""

    object: Literal["list"]
    dataset: str
    dataset_id: str | None = Field(description="Of the dataset: one made later under the same name has another.")
    version: int
    dimension: int | None
    rows: int
    data: list[OutputPart]


router = Family("ingestions")

_LIST_TIMEOUT_S = 5.0
_FILES_AT_ONCE = 500
_INGESTION: Errors = (*CALLER, errors.IngestionUnknown)


@router.describe(
    "POST",
    "/v1/ingestions",
    Answer(202, Ingestion, headers=(LOCATION, RETRY_AFTER)),
    scopes=INGESTION_MAKING,
    errors=(
        *JSON_BODY,
        errors.ModelNotFound,
        errors.FileUnknown,
        errors.IdempotencyConflict,
        errors.SourceFailed,
        errors.QuotaExceeded,
        errors.TooManyIngestions,
        errors.KeyLimitReached,
        errors.StorageFull,
        errors.NotReplicated,
        errors.StorageUnavailable,
        errors.DiskFull,
    ),
    reads=(IDEMPOTENCY_KEY,),
    body=json_body(IngestionBody),
    slash=True,
)
async def create(request: Request) -> Response:
    """Starts an ingestion of documents. Faults of a document show later: that document then fails."""
    services = Services.from_request(request)
    owner = services.owner(request)
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    wanted = await offload_in_turn(
        len(body),
        IngestionRequest.from_body,
        body,
        owner=owner,
        idempotency_key=key,
        settings=services.settings,
        registry=services.registry,
        limits=services.keys.limits(owner),
    )
    await _require_files(services, owner, wanted.files)
    ingestion_id = await _create(services, wanted)
    headers = {"location": f"/v1/ingestions/{ingestion_id}", "retry-after": "1"}
    return await _answer(services, request, ingestion_id, headers, status=202)


@router.describe(
    "GET",
    "/v1/ingestions",
    Answer(200, IngestionList),
    scopes=INGESTION_READING,
    errors=(*_INGESTION, errors.RequestError),
    reads=(page_after("Last id of the page before."), page_limit("Of one page.")),
    slash=True,
)
async def list_own(request: Request) -> Response:
    """Lists the caller's ingestions, newest first."""
    services = Services.from_request(request)
    page = await read_own_ids(services, request, INGESTIONS, list_ingestions)
    records = await services.ledger.run(read_ingestions(page.items), timeout_s=_LIST_TIMEOUT_S) if page.items else []
    waiting = await why_waiting(services.ledger, services.registry, records)
    data = [ingestion_json(record, why) for record, why in zip(records, waiting, strict=True)]
    return json_response(list_json(data, more=page.more), NO_STORE)


@router.describe(
    "GET", "/v1/ingestions/{ingestion_id}", Answer(200, Ingestion), scopes=INGESTION_READING, errors=_INGESTION
)
async def read(request: Request, ingestion_id: str) -> Response:
    """Returns an ingestion as it is now."""
    return await _answer(Services.from_request(request), request, ingestion_id)


@router.describe(
    "GET",
    "/v1/ingestions/{ingestion_id}/documents",
    Answer(200, IngestionDocumentList),
    scopes=INGESTION_READING,
    errors=(*_INGESTION, errors.RequestError, errors.StorageUnavailable),
    reads=(
        query("filter", {"enum": [*FILTERS]}, "Documents in this state only.", empty_is_absent=True),
        page_after("last_id of the page before."),
        page_limit("Of one page."),
    ),
)
async def documents(request: Request, ingestion_id: str) -> Response:
    """Lists the documents of an ingestion and their outcomes, in the order of the source."""
    services = Services.from_request(request)
    ingestion = await read_own(services, request, INGESTIONS, ingestion_id)
    page = await read_documents(services, ingestion, DocumentQuery.from_query(request.query_params))
    answer = {"object": "list", "data": page.documents, "last_id": page.until, "has_more": page.more}
    return json_response(answer, NO_STORE)


@router.describe(
    "GET",
    "/v1/ingestions/{ingestion_id}/output",
    Answer(200, Output),
    scopes=INGESTION_READING,
    errors=(*_INGESTION, errors.RequestError, errors.StorageUnavailable),
)
async def output(request: Request, ingestion_id: str) -> Response:
    """Lists the Parquet files of an ingestion's dataset, as the dataset is now."""
    services = Services.from_request(request)
    ingestion = await read_own(services, request, INGESTIONS, ingestion_id)
    return json_response(output_json(ingestion, await read_output(services, ingestion)), NO_STORE)


@router.describe(
    "GET",
    "/v1/ingestions/{ingestion_id}/output/{name}",
    *CONTENT_ANSWERS,
    scopes=INGESTION_READING,
    errors=(
        *_INGESTION,
        errors.FileUnknown,
        errors.RequestError,
        errors.RangeNotSatisfiable,
        errors.StorageUnavailable,
    ),
    reads=RANGE,
)
async def part(request: Request, ingestion_id: str, name: str) -> Response:
    """Returns one Parquet file; with `Range`, some of its bytes."""
    services = Services.from_request(request)
    ingestion = await read_own(services, request, INGESTIONS, ingestion_id)
    wanted = (await read_output(services, ingestion)).find(name)
    gone = FileUnknown("There is no such part (any more). GET …/output lists those there are.", param="name")
    if wanted is None:
        raise gone
    return await content(
        request,
        services.storage,
        wanted.stored,
        size_bytes=wanted.size_bytes,
        tag=part_tag(wanted),
        filename=wanted.name,
        gone=gone,
    )


@router.describe(
    "POST",
    "/v1/ingestions/{ingestion_id}/cancel",
    Answer(200, Ingestion),
    scopes=INGESTION_MAKING,
    errors=(*_INGESTION, errors.IngestionEnded, errors.NotReplicated),
    slash=True,
)
async def cancel(request: Request, ingestion_id: str) -> Response:
    """Cancels an ingestion; what is loaded stays. Cancelling twice returns 200."""
    services = Services.from_request(request)
    await read_own(services, request, INGESTIONS, ingestion_id)
    status = (await services.ledger.run(cancel_ingestion(ingestion_id))).status
    if status not in {IngestionStatus.CANCELLING, IngestionStatus.CANCELLED, None}:
        raise IngestionEnded(f"Cannot cancel an ingestion with status '{status}'.")
    return await _answer(services, request, ingestion_id)


@router.describe(
    "POST",
    "/v1/ingestions/{ingestion_id}/retry",
    Answer(200, Ingestion),
    scopes=INGESTION_MAKING,
    errors=(
        *_INGESTION,
        errors.IngestionEnded,
        errors.InvalidValue,
        errors.SourceFailed,
        errors.NotReplicated,
    ),
    slash=True,
)
async def retry(request: Request, ingestion_id: str) -> Response:
    """Tries the failed documents of an ended ingestion again under its id. A resumable one goes on where it was."""
    services = Services.from_request(request)
    ingestion = await read_own(services, request, INGESTIONS, ingestion_id)
    if ingestion.status.terminal and not ingestion.counts.failed and not ingestion.resumable:
        raise IngestionEnded("None of its documents has failed, so there is nothing to try again.")
    check_again(ingestion.spec, services.settings, services.keys.limits(ingestion.owner))
    again = resume_ingestion if ingestion.resumable else retry_ingestion
    move = await services.ledger.run(again(ingestion_id))
    status = move.status
    # Not moved by this call: by an earlier one whose answer was lost, or by somebody else in this moment.
    going_on = ingestion.status.terminal and status is not None and not status.terminal
    if not move.moved and status is not None and not going_on:
        reason = "it has failed as a whole" if status is IngestionStatus.FAILED else f"its status is '{status}'"
        advice = " Send its request again: what is loaded is not done again." if status.terminal else ""
        raise IngestionEnded(f"Only an ingestion that has completed can be tried again; {reason}.{advice}")
    return await _answer(services, request, ingestion_id)


@router.describe(
    "DELETE",
    "/v1/ingestions/{ingestion_id}",
    Answer(200, DeletedIngestion),
    scopes=INGESTION_MAKING,
    errors=(*_INGESTION, errors.IngestionOpen, errors.NotReplicated),
    slash=True,
)
async def delete(request: Request, ingestion_id: str) -> Response:
    """Deletes the record of an ended ingestion and its documents' outcomes. What it has loaded under a name stays."""
    services = Services.from_request(request)
    await read_own(services, request, INGESTIONS, ingestion_id)
    deleted, status = await services.ledger.run(delete_ingestion(ingestion_id))
    if not deleted and status is not None:
        message = f"Cannot delete an ingestion with status '{status}'. Cancel it, and delete it when it has ended."
        raise IngestionOpen(message)
    return json_response({"id": ingestion_id, "object": "ingestion", "deleted": True}, NO_STORE)


async def _require_files(services: Services, owner: str, ids: Sequence[str]) -> None:
    for first in range(0, len(ids), _FILES_AT_ONCE):
        some = ids[first : first + _FILES_AT_ONCE]
        files = await services.ledger.run(read_files(some))
        for index, file in enumerate(files, start=first):
            if file is None or file.owner != owner:
                raise FileUnknown(f"source.files[{index}] is no file of yours.", param=f"source.files[{index}]")


async def _create(services: Services, wanted: IngestionRequest) -> str:
    """Stores what was asked for; the id of the ingestion, which may be that of an earlier request with the same key."""
    # Before the record: whoever works on it finds the list there.
    storage = await services.storage.open()
    await services.storage.run(storage.write, wanted.stored, wanted.listed)
    try:
        held = await services.storage.run(datasets.held_bytes, storage, wanted.ingestion.owner)
        key = services.keys.limits(wanted.ingestion.owner)
        own = key.stored_bytes
        quota = Quota(services.settings.file_quota_bytes if own is None else own, services.settings.file_quota_number)
        limits = RecordLimits(services.settings.max_open_ingestions, quota, key.open_jobs)
        create = create_ingestion(wanted.ingestion, limits, dataset_bytes=held)
        ingestion_id = await services.ledger.run(create)
    except (RequestError, StorageFull):
        # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
        await services.storage.discard(wanted.stored)
        raise
    if ingestion_id != wanted.ingestion.id:
        await services.storage.discard(wanted.stored)
    return ingestion_id


async def _answer(
    services: Services,
    request: Request,
    ingestion_id: str,
    headers: Mapping[str, str] | None = None,
    *,
    status: int = 200,
) -> Response:
    ingestion = await read_own(services, request, INGESTIONS, ingestion_id)
    [waiting] = await why_waiting(services.ledger, services.registry, [ingestion])
    return json_response(ingestion_json(ingestion, waiting), {**NO_STORE, **(headers or {})}, status=status)

"""Ingestions: documents in, vectors in a store out."""

from collections.abc import Sequence

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.content import BYTES, content
from api.direct import direct_router
from api.ingestion_answers import Ingestion, IngestionDocumentList, IngestionList, Output
from api.ingestion_documents import FILTERS, DocumentQuery, read_documents
from api.ingestion_output import output_json, part_tag, read_output
from api.ingestion_schemas import IngestionBody
from api.ingestions import INGESTIONS, Asked, asked_for, ingestion_json
from api.offload import offload_in_turn
from api.openapi import json_body, paging
from api.owned import list_body, own, own_ids
from api.page import DEFAULT_LIMIT, MAX_LIMIT
from api.quota import quota
from api.services import Services
from tasks.errors import FileUnknown, IngestionEnded, NotStored, RequestError
from tasks.ledger import datasets, ingestions
from tasks.ledger.file_operations import read_files
from tasks.ledger.ingestion_operations import (
    cancel_ingestion,
    create_ingestion,
    read_ingestions,
    resume_ingestion,
    retry_ingestion,
)
from tasks.ledger.ingestions import IngestionStatus

router = direct_router(tag="ingestions", prefix="/v1/ingestions")

_JSON = "application/json"
_NO_STORE = {"cache-control": "no-store"}
_LIST_TIMEOUT_S = 5.0
_FILES_AT_ONCE = 500
_LIMIT = paging(
    "limit", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}, "Of one page."
)
_PAGE = {"parameters": [paging("after", {"type": "string"}, "Last id of the page before."), _LIMIT]}
_DOCUMENTS = {
    "parameters": [
        paging("filter", {"enum": [*FILTERS]}, "Documents in this state only."),
        paging("after", {"type": "string"}, "last_id of the page before."),
        _LIMIT,
    ]
}


@router.post("", status_code=202, responses={202: {"model": Ingestion}}, openapi_extra=json_body(IngestionBody))
@router.post("/", include_in_schema=False)
async def create(request: Request) -> Response:
    """Starts an ingestion. What is wrong with a document shows later: that document then fails."""
    services = Services.of(request)
    owner = services.owner(request)
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    asked = await offload_in_turn(
        len(body),
        asked_for,
        body,
        owner=owner,
        idempotency_key=key,
        settings=services.settings,
        registry=services.registry,
    )
    await _require_files(services, owner, asked.files)
    ingestion_id = await _create(services, asked)
    found = await own(services, request, INGESTIONS, ingestion_id)
    headers = {"location": f"/v1/ingestions/{found.id}", "retry-after": "1"}
    return Response(orjson.dumps(ingestion_json(found)), 202, headers | _NO_STORE, _JSON)


@router.get("", responses={200: {"model": IngestionList}}, openapi_extra=_PAGE)
@router.get("/", include_in_schema=False)
async def list_own(request: Request) -> Response:
    """The caller's ingestions, the newest first."""
    services = Services.of(request)
    ids, more = await own_ids(services, request, INGESTIONS)
    found = await services.ledger.run(read_ingestions(ids), timeout_s=_LIST_TIMEOUT_S) if ids else []
    page = list_body([ingestion_json(one) for one in found], more=more)
    return Response(page, headers=_NO_STORE, media_type=_JSON)


@router.get("/{ingestion_id}", responses={200: {"model": Ingestion}})
async def read(request: Request, ingestion_id: str) -> Response:
    """An ingestion as it is now."""
    return _answer(await own(Services.of(request), request, INGESTIONS, ingestion_id))


@router.get("/{ingestion_id}/documents", responses={200: {"model": IngestionDocumentList}}, openapi_extra=_DOCUMENTS)
async def documents(request: Request, ingestion_id: str) -> Response:
    """Its documents and what became of them, in the order of the source."""
    services = Services.of(request)
    found = await own(services, request, INGESTIONS, ingestion_id)
    page = await read_documents(services, found, DocumentQuery.of(request.query_params))
    answer = {"object": "list", "data": page.documents, "last_id": page.until, "has_more": page.more}
    return Response(orjson.dumps(answer), headers=_NO_STORE, media_type=_JSON)


@router.get("/{ingestion_id}/output", responses={200: {"model": Output}})
async def output(request: Request, ingestion_id: str) -> Response:
    """The Parquet files of its dataset, as the dataset is now."""
    services = Services.of(request)
    found = await own(services, request, INGESTIONS, ingestion_id)
    listed = output_json(found, await read_output(services, found))
    return Response(orjson.dumps(listed), headers=_NO_STORE, media_type=_JSON)


@router.get(
    "/{ingestion_id}/output/{name}",
    response_class=StreamingResponse,
    responses={200: {"content": {BYTES: {}}}, 206: {"content": {BYTES: {}}}},
)
async def part(request: Request, ingestion_id: str, name: str) -> Response:
    """One Parquet file; with `Range`, some of its bytes."""
    services = Services.of(request)
    found = await own(services, request, INGESTIONS, ingestion_id)
    wanted = (await read_output(services, found)).find(name)
    gone = FileUnknown("There is no such part (any more). GET …/output lists those there are.", param="name")
    if wanted is None:
        raise gone
    try:
        return await content(
            request,
            services.storage,
            wanted.stored,
            size_bytes=wanted.size_bytes,
            tag=part_tag(wanted),
            filename=wanted.name,
        )
    except NotStored:
        raise gone from None


@router.post("/{ingestion_id}/cancel", responses={200: {"model": Ingestion}})
@router.post("/{ingestion_id}/cancel/", include_in_schema=False)
async def cancel(request: Request, ingestion_id: str) -> Response:
    """Asks for its end; what is loaded stays. Cancelling twice is fine."""
    services = Services.of(request)
    await own(services, request, INGESTIONS, ingestion_id)
    _, status = await services.ledger.run(cancel_ingestion(ingestion_id))
    if status not in {IngestionStatus.CANCELLING, IngestionStatus.CANCELLED, None}:
        raise IngestionEnded(f"Cannot cancel an ingestion with status '{status}'.")
    return _answer(await own(services, request, INGESTIONS, ingestion_id))


@router.post("/{ingestion_id}/retry", responses={200: {"model": Ingestion}})
@router.post("/{ingestion_id}/retry/", include_in_schema=False)
async def retry(request: Request, ingestion_id: str) -> Response:
    """Tries the failed documents of one that has ended again, under the same id; or goes on with one that could not."""
    services = Services.of(request)
    found = await own(services, request, INGESTIONS, ingestion_id)
    if found.status.terminal and not found.counts.failed and not found.resumable:
        raise IngestionEnded("None of its documents has failed, so there is nothing to try again.")
    again = resume_ingestion if found.resumable else retry_ingestion
    moved, status = await services.ledger.run(again(ingestion_id))
    # Not moved by this call: by an earlier one whose answer was lost, or by somebody else in this moment.
    going_on = found.status.terminal and status is not None and not status.terminal
    if not moved and status is not None and not going_on:
        reason = "it has failed as a whole" if status is IngestionStatus.FAILED else f"its status is '{status}'"
        advice = " Send its request again: what is loaded is not done again." if status.terminal else ""
        raise IngestionEnded(f"Only an ingestion that has completed can be tried again; {reason}.{advice}")
    return _answer(await own(services, request, INGESTIONS, ingestion_id))


async def _require_files(services: Services, owner: str, ids: Sequence[str]) -> None:
    for first in range(0, len(ids), _FILES_AT_ONCE):
        some = ids[first : first + _FILES_AT_ONCE]
        files = await services.ledger.run(read_files(some))
        for index, file in enumerate(files, start=first):
            if file is None or file.owner != owner:
                raise FileUnknown(f"source.files[{index}] is no file of yours.", param=f"source.files[{index}]")


async def _create(services: Services, asked: Asked) -> str:
    """Stores what was asked for; the id of the ingestion, which may be that of an earlier request with the same key."""
    # Before the record: whoever works on it finds the list there.
    storage = await services.storage.open_to_write()
    await services.storage.run(storage.write, asked.stored, asked.listed)
    try:
        max_open = services.settings.max_open_ingestions
        held = await services.storage.run(datasets.held_bytes, storage, asked.ingestion.owner)
        allowed = quota(services.settings)
        create = create_ingestion(asked.ingestion, max_open=max_open, quota=allowed, dataset_bytes=held)
        ingestion_id = await services.ledger.run(create)
    except RequestError:
        await services.storage.delete(asked.stored)
        raise
    if ingestion_id != asked.ingestion.id:
        await services.storage.delete(asked.stored)
    return ingestion_id


def _answer(found: ingestions.Ingestion) -> Response:
    return Response(orjson.dumps(ingestion_json(found)), headers=_NO_STORE, media_type=_JSON)

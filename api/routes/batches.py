"""OpenAI's batches: many requests in one file, answered in files."""

import asyncio

import orjson
from starlette.requests import Request
from starlette.responses import Response

from api.answers import Batch, BatchList
from api.batch_schemas import BatchBody
from api.batches import BATCHES, admission, batch_json, new_batch
from api.direct import direct_router
from api.offload import offload_in_turn
from api.openapi import json_body, paging
from api.owned import list_body, own, own_ids
from api.page import DEFAULT_LIMIT, MAX_LIMIT
from api.services import Services
from tasks.errors import BatchEnded
from tasks.ledger import batches
from tasks.ledger.batch_operations import create_batch, move_batch, read_batches_later
from tasks.ledger.batches import BatchStatus

router = direct_router(tag="batches")

_JSON = "application/json"
_NO_STORE = {"cache-control": "no-store"}
_LIST_TIMEOUT_S = 5.0
"""A page may hold thousands of error messages."""
_CANCELLABLE = [status for status in BatchStatus if not status.terminal and status is not BatchStatus.CANCELLING]
_PAGE = {
    "parameters": [
        paging("after", {"type": "string"}, "Last id of the page before."),
        paging(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            "Batches in one page.",
        ),
    ]
}


@router.post("/v1/batches", responses={200: {"model": Batch}}, openapi_extra=json_body(BatchBody))
@router.post("/v1/batches/", include_in_schema=False)
@router.post("/batches", include_in_schema=False)
@router.post("/batches/", include_in_schema=False)
async def create(request: Request) -> Response:
    """Starts a batch over an uploaded file. What is wrong with the file shows later: the batch then fails."""
    services = Services.of(request)
    owner = services.owner(request)
    key = request.headers.get("idempotency-key")
    body = await services.bodies.read(request)
    asked = await offload_in_turn(
        len(body), new_batch, body, owner=owner, idempotency_key=key, settings=services.settings
    )
    batch_id = await services.ledger.run(create_batch(asked, admission(services.settings)))
    return _answer(await own(services, request, BATCHES, batch_id))


@router.get("/v1/batches", responses={200: {"model": BatchList}}, openapi_extra=_PAGE)
@router.get("/v1/batches/", include_in_schema=False)
@router.get("/batches", include_in_schema=False)
@router.get("/batches/", include_in_schema=False)
async def list_own(request: Request) -> Response:
    """The caller's batches, the newest first."""
    services = Services.of(request)
    ids, more = await own_ids(services, request, BATCHES)
    if not ids:
        return _json(list_body([], more=more))
    later = await services.ledger.run(read_batches_later(ids), timeout_s=_LIST_TIMEOUT_S)
    return _json(await asyncio.to_thread(lambda: list_body([batch_json(batch) for batch in later()], more=more)))


@router.get("/v1/batches/{batch_id}", responses={200: {"model": Batch}})
@router.get("/v1/batches/{batch_id}/", include_in_schema=False)
@router.get("/batches/{batch_id}", include_in_schema=False)
@router.get("/batches/{batch_id}/", include_in_schema=False)
async def read(request: Request, batch_id: str) -> Response:
    """A batch as it is now."""
    return _answer(await own(Services.of(request), request, BATCHES, batch_id))


@router.post("/v1/batches/{batch_id}/cancel", responses={200: {"model": Batch}})
@router.post("/v1/batches/{batch_id}/cancel/", include_in_schema=False)
@router.post("/batches/{batch_id}/cancel", include_in_schema=False)
@router.post("/batches/{batch_id}/cancel/", include_in_schema=False)
async def cancel(request: Request, batch_id: str) -> Response:
    """Asks for the end of a batch; what was finished will be in its files. Cancelling twice is fine."""
    services = Services.of(request)
    await own(services, request, BATCHES, batch_id)
    move = move_batch(batch_id, BatchStatus.CANCELLING, only_from=_CANCELLABLE)
    _, status = await services.ledger.run(move)
    if status not in {BatchStatus.CANCELLING, BatchStatus.CANCELLED, None}:
        raise BatchEnded(f"Cannot cancel a batch with status '{status}'.")
    return _answer(await own(services, request, BATCHES, batch_id))


def _answer(batch: batches.Batch) -> Response:
    return _json(orjson.dumps(batch_json(batch)))


def _json(body: bytes) -> Response:
    return Response(body, media_type=_JSON, headers=_NO_STORE)

"""Files: OpenAI's calls. The bytes are in the storage, the records in the ledger."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import orjson
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.answer.content import BYTES, content
from api.document.answers import DeletedFile, File, FileList
from api.document.openapi import FILE_FORM, FILE_PAGE
from api.request.memory_budget import LargeResponse
from api.request.offload import offload
from api.request.ownership import Resource, read_own
from api.request.paging import ListPage, list_json, read_limit, read_page
from api.request.quota import quota, room
from api.request.upload import Received, announced_bytes, receive
from api.server.direct import direct_router
from api.services import Services
from tasks.errors import FileUnknown, InvalidValue, NotStored, QuotaExceeded, StorageFull, StorageUnavailable
from tasks.ledger import AsyncLedger
from tasks.records import files
from tasks.records.files import (
    FileRecord,
    Order,
    created_ms,
    delete_file,
    new_file_id,
    put_file,
    read_file,
    stored_name,
)

# One page of a caller's files, as OpenAI's clients ask for it.

MAX_LIMIT = 10_000
_AT_ONCE = 250


@dataclass(frozen=True, slots=True)
class FileQuery:
    """What is asked for. `purpose`: None for any; of one that does not exist there are no files."""

    purpose: str | None
    after: str | None
    limit: int
    order: Order

    @classmethod
    def from_query(cls, query: QueryParams) -> Self:
        """From the query string; empty values count as absent.

        Raises:
            InvalidValue: a value that cannot be, with its name.
        """
        limit = read_limit(query, default=MAX_LIMIT, most=MAX_LIMIT)
        order, after = query.get("order") or "desc", query.get("after")
        if order not in tuple(Order):
            raise InvalidValue("order must be 'asc' or 'desc'.", param="order")
        if after and created_ms(after) is None:
            raise InvalidValue("after must be the id of a file.", param="after")
        return cls(query.get("purpose") or None, after or None, limit, Order(order))


async def read_files(ledger: AsyncLedger, owner: str, query: FileQuery) -> tuple[Sequence[FileRecord], bool]:
    """The files of a page, and whether there are more behind it."""

    async def read(after: str | None, limit: int) -> ListPage[FileRecord]:
        # Of many only some at once: reading a reply holds the loop.
        most = min(limit, _AT_ONCE)
        page = await ledger.run(
            files.list_files(owner, purpose=query.purpose, after=after, limit=most, order=query.order)
        )
        return ListPage(page.files, page.next, page.next is not None)

    # One more than asked for says whether there is more.
    found = (await read_page(read, after=query.after, limit=query.limit + 1)).items
    return found[: query.limit], len(found) > query.limit


router = direct_router(tag="files")

_log = logging.getLogger(__name__)
_JSON = "application/json"
_BYTES_OF_FILE = 400
"""About as much has a file in a list."""
F = TypeVar("F", bound=Callable[..., Any])


def _answers(method: str, path: str, **described: Any) -> Callable[[F], F]:
    """Registers a function at `/v1` and the path, and silently at its aliases: without `/v1`, with a slash."""

    def register(function: F) -> F:
        for prefix in ("/v1", ""):
            for slash in ("", "/"):
                shown = described if prefix and not slash else {"include_in_schema": False}
                router.add_api_route(prefix + path + slash, function, methods=[method], **shown)
        return function

    return register


@_answers("POST", "/files", responses={200: {"model": File}}, openapi_extra=FILE_FORM)
async def create_file(request: Request) -> Response:
    """Stores a file. It is there when the answer comes, whole, and not at all after an error."""
    services = Services.of(request)
    owner = services.owner(request)
    announced = announced_bytes(request, services.settings.max_file_bytes) or 0
    file_id = new_file_id()
    # Before the body is read: whoever is over the quota would otherwise send gigabytes to hear of it.
    async with room(services.ledger, owner, file_id, quota(services.settings), announced) as taken:
        received = await receive(request, services.storage, stored_name(file_id), services.settings, taken)
        return _json(_file(await _record(services, _made(file_id, owner, received))))


def _made(file_id: str, owner: str, received: Received) -> FileRecord:
    made_ms = created_ms(file_id) or 0
    return FileRecord(
        id=file_id,
        owner=owner,
        filename=received.filename,
        purpose=received.purpose,
        size_bytes=received.size_bytes,
        created_ms=made_ms,
        expires_ms=None if received.expires_in_s is None else made_ms + received.expires_in_s * 1000,
        stored=stored_name(file_id),
    )


@_answers("GET", "/files", responses={200: {"model": FileList}}, openapi_extra=FILE_PAGE)
async def list_files(request: Request) -> Response:
    """The caller's files, newest first unless asked otherwise."""
    services = Services.of(request)
    owner = services.owner(request)
    files, more = await read_files(services.ledger, owner, FileQuery.from_query(request.query_params))
    size_bytes = len(files) * _BYTES_OF_FILE
    services.answers.take_large(request.scope, size_bytes)
    return LargeResponse(await offload(size_bytes, _page, files, more=more), media_type=_JSON)


@_answers("GET", "/files/{file_id}", responses={200: {"model": File}})
async def retrieve_file(request: Request, file_id: str) -> Response:
    """What is known of a file."""
    return _json(_file(await read_own(Services.of(request), request, FILES, file_id)))


@_answers(
    "GET",
    "/files/{file_id}/content",
    response_class=StreamingResponse,
    responses={200: {"content": {BYTES: {}}}, 206: {"content": {BYTES: {}}}},
)
async def retrieve_content(request: Request, file_id: str) -> Response:
    """A file's bytes as they were uploaded; with `Range`, some of them."""
    services = Services.of(request)
    file = await read_own(services, request, FILES, file_id)
    try:
        return await content(
            # An id never gets another content, so it does as a tag.
            request,
            services.storage,
            file.stored,
            size_bytes=file.size_bytes,
            tag=file.id,
            filename=file.filename,
        )
    except NotStored:
        raise _unknown(file_id) from None


@_answers("DELETE", "/files/{file_id}", responses={200: {"model": DeletedFile}})
async def remove_file(request: Request, file_id: str) -> Response:
    """Deletes a file for good."""
    services = Services.of(request)
    file = await read_own(services, request, FILES, file_id)
    # The bytes first: where the storage refuses, the caller hears it, and the record still leads to them.
    await services.storage.delete(file.stored)
    await services.ledger.run(delete_file(file_id))
    return _json({"id": file_id, "object": "file", "deleted": True})


def _page(files: Sequence[FileRecord], *, more: bool) -> bytes:
    return orjson.dumps(list_json([_file(file) for file in files], more=more))


async def _record(services: Services, record: FileRecord) -> FileRecord:
    try:
        return await services.ledger.run(put_file(record, quota(services.settings)))
    except (QuotaExceeded, StorageFull):
        # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
        await _discard(services, record.stored)
        raise


async def _discard(services: Services, stored: str) -> None:
    try:
        await services.storage.delete(stored)
    except StorageUnavailable:
        _log.warning("%s could not be deleted; the sweep will", stored)


def _unknown(file_id: str) -> FileUnknown:
    if created_ms(file_id) is None:
        return FileUnknown("No such File object: ids of files are file- and 32 hexadecimal digits.", param="id")
    return FileUnknown(f"No such File object: {file_id}.", param="id")


FILES = Resource(
    "file",
    lambda file_id: created_ms(file_id) is not None,
    read_file,
    FileUnknown,
    "POST /v1/files",
    lambda file_id, _settings: _unknown(file_id),
)


def _file(file: FileRecord) -> dict[str, Any]:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size_bytes,
        "created_at": file.created_ms // 1000,
        "expires_at": None if file.expires_ms is None else file.expires_ms // 1000,
        "filename": file.filename,
        "purpose": file.purpose.value,
        "status": "processed",
    }


def _json(content: dict[str, Any]) -> Response:
    return Response(orjson.dumps(content), media_type=_JSON)

"""Files: OpenAI's calls. The bytes are in the storage, the records in the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import orjson
from pydantic import BaseModel, Field
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from api.answer.content import CONTENT_ANSWERS, RANGE, content
from api.answer.description import TEXT, Answer, query
from api.answer.json_response import JSON, ListOf, json_response, list_json, unix_seconds
from api.families.route import CALLER, FILE_MAKING, FILE_READING, Errors, Family, page_after, page_limit
from api.parts import Services
from api.request.memory_budget import LargeResponse
from api.request.offload import offload
from api.request.ownership import Resource, read_own
from api.request.paging import ListPage, read_limit, read_page
from api.request.quota import quota, room
from api.request.upload import MAX_EXPIRY_S, MIN_EXPIRY_S, Received, announced_bytes, receive
from tasks import errors
from tasks.errors import FileUnknown, InvalidValue, QuotaExceeded, StorageFull
from tasks.ledger import AsyncLedger
from tasks.records import files
from tasks.records.files import (
    FileRecord,
    Order,
    Quota,
    created_ms,
    delete_file,
    new_file_id,
    put_file,
    read_file,
    stored_name,
)

# A page of a caller's files, as OpenAI's clients request it.

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
    records = (await read_page(read, after=query.after, limit=query.limit + 1)).items
    return records[: query.limit], len(records) > query.limit


class File(BaseModel):
    """A file, as OpenAI's clients know it. Times are Unix seconds."""

    id: str = Field(examples=["file-019a8f6e3c5b7d1e9f002b7c4d5e6f70"])
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None = Field(description="When it is deleted; null: when you delete it.")
    filename: str
    purpose: Literal["assistants", "batch", "evals", "fine-tune", "user_data", "vision", "batch_output"]
    status: Literal["processed"]


class FileList(ListOf[File]):
    """A page of files."""


class DeletedFile(BaseModel):
    """Confirms that a file is deleted."""

    id: str
    object: Literal["file"]
    deleted: Literal[True]


router = Family("files", bare=True)

_BYTES_OF_FILE = 400
"""About as much has a file in a list."""
_FILE: Errors = (*CALLER, errors.FileUnknown)
_FORM = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "minLength": 1},
        "purpose": {"enum": ["assistants", "batch", "evals", "fine-tune", "user_data", "vision"]},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": MIN_EXPIRY_S, "maximum": MAX_EXPIRY_S},
    },
}


@router.describe(
    "POST",
    "/v1/files",
    Answer(200, File),
    scopes=FILE_MAKING,
    errors=(
        *CALLER,
        errors.InvalidFile,
        errors.FileTooLarge,
        errors.UnsupportedMediaType,
        errors.QuotaExceeded,
        errors.StorageFull,
        errors.NotReplicated,
        errors.StorageUnavailable,
        errors.DiskFull,
    ),
    body={"multipart/form-data": _FORM},
    slash=True,
)
async def create_file(request: Request) -> Response:
    """Stores a file. When the answer comes the file is stored whole; after an error nothing of it is stored."""
    services = Services.from_request(request)
    owner = services.owner(request)
    announced = announced_bytes(request, services.settings.max_file_bytes) or 0
    file_id = new_file_id()
    # Before the body is read: whoever is over the quota would otherwise send gigabytes to hear of it.
    allowed = quota(services.settings, services.keys.limits(owner))
    async with room(services.ledger, owner, file_id, allowed, announced) as taken:
        received = await receive(request, services.storage, stored_name(file_id), services.settings, taken)
        return json_response(_file(await _record(services, _made(file_id, owner, received), allowed)))


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


@router.describe(
    "GET",
    "/v1/files",
    Answer(200, FileList),
    scopes=FILE_READING,
    errors=(*CALLER, errors.RequestError, errors.Overloaded),
    reads=(
        query("purpose", TEXT, "Files of this purpose only.", empty_is_absent=True),
        page_limit("Files per page.", default=MAX_LIMIT, most=MAX_LIMIT),
        query("order", {"enum": ["asc", "desc"], "default": "desc"}, "By time of creation.", empty_is_absent=True),
        page_after("The last file of the page before."),
    ),
    slash=True,
)
async def list_files(request: Request) -> Response:
    """Lists the caller's files, newest first by default."""
    services = Services.from_request(request)
    owner = services.owner(request)
    files, more = await read_files(services.ledger, owner, FileQuery.from_query(request.query_params))
    size_bytes = len(files) * _BYTES_OF_FILE
    services.answers.take_large(request.scope, size_bytes)
    return LargeResponse(await offload(size_bytes, _page, files, more=more), media_type=JSON)


@router.describe("GET", "/v1/files/{file_id}", Answer(200, File), scopes=FILE_READING, errors=_FILE, slash=True)
async def retrieve_file(request: Request, file_id: str) -> Response:
    """Returns the record of a file."""
    return json_response(_file(await read_own(Services.from_request(request), request, FILES, file_id)))


@router.describe(
    "GET",
    "/v1/files/{file_id}/content",
    *CONTENT_ANSWERS,
    scopes=FILE_READING,
    errors=(*_FILE, errors.RangeNotSatisfiable, errors.StorageUnavailable),
    reads=RANGE,
    slash=True,
)
async def retrieve_content(request: Request, file_id: str) -> Response:
    """Returns the bytes of a file as they were uploaded; with `Range`, some of them."""
    services = Services.from_request(request)
    file = await read_own(services, request, FILES, file_id)
    return await content(
        request,
        services.storage,
        file.stored,
        size_bytes=file.size_bytes,
        tag=file.id,  # an id never gets another content
        filename=file.filename,
        gone=_unknown(file_id),
    )


@router.describe(
    "DELETE",
    "/v1/files/{file_id}",
    Answer(200, DeletedFile),
    scopes=FILE_MAKING,
    errors=(*_FILE, errors.StorageUnavailable, errors.NotReplicated),
    slash=True,
)
async def remove_file(request: Request, file_id: str) -> Response:
    """Deletes a file for good."""
    services = Services.from_request(request)
    file = await read_own(services, request, FILES, file_id)
    # The bytes first: where the storage refuses, the caller hears it, and the record still leads to them.
    await services.storage.delete(file.stored)
    await services.ledger.run(delete_file(file_id))
    return json_response({"id": file_id, "object": "file", "deleted": True})


def _page(files: Sequence[FileRecord], *, more: bool) -> bytes:
    return orjson.dumps(list_json([_file(file) for file in files], more=more))


async def _record(services: Services, record: FileRecord, allowed: Quota) -> FileRecord:
    try:
        return await services.ledger.run(put_file(record, allowed))
    except (QuotaExceeded, StorageFull):
        # Only where Redis said no. After a lost answer there may be a record, which must not lead to nothing.
        await services.storage.discard(record.stored)
        raise


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
        "expires_at": unix_seconds(file.expires_ms),
        "filename": file.filename,
        "purpose": file.purpose.value,
        "status": "processed",
    }

"""Files: OpenAI's calls."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from api.auth import FileMaker, FileReader
from api.dependencies import After, Downloaded, FileLimit, Files, InTurn, LargeJSON, OrderQuery, Uploaded
from api.schemas.answer_parts import Deleted, Page, PagePlace
from api.schemas.files import CONTENT, UPLOAD, File
from tasks.records.store import Order

router = APIRouter(prefix="/v1/files", tags=["files"])

PurposeQuery = Annotated[str | None, Query(description="Files of this purpose only.")]


@router.post("", openapi_extra=UPLOAD)
async def create_file(_key: FileMaker, files: Files, upload: Uploaded) -> File:
    """Stores a file. When the answer comes the file is stored whole; after an error nothing of it is stored."""
    return await files.create(*upload)


@router.get("", response_model=Page[File])
async def list_files(
    key: FileReader,
    files: Files,
    _turn: InTurn,
    *,
    purpose: PurposeQuery = None,
    after: After = None,
    limit: FileLimit = 10_000,
    order: OrderQuery = "desc",
    answer: LargeJSON,
) -> Response:
    """Lists the caller's files, newest first by default."""
    return await answer(files.list(key, PagePlace(after, limit), purpose or None, Order(order)))


@router.get("/{file_id}")
async def retrieve_file(key: FileReader, files: Files, file_id: str) -> File:
    """Returns the record of a file."""
    return await files.read(key, file_id)


@router.get("/{file_id}/content", response_class=Response, responses=CONTENT)
async def retrieve_content(key: FileReader, files: Files, file_id: str, download: Downloaded) -> Response:
    """Returns the bytes of a file as they were uploaded; with `Range`, some of them."""
    return await download(await files.content(key, file_id))


@router.delete("/{file_id}")
async def delete_file(key: FileMaker, files: Files, file_id: str) -> Deleted:
    """Deletes a file for good."""
    await files.delete(key, file_id)
    return Deleted(id=file_id, object="file")

"""Files on their way through HTTP: the form of an upload, and stored bytes as an answer, whole or a range of them."""

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO
from urllib.parse import quote

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from api.answer.errors import CallerGone
from api.async_storage import AsyncStorage
from tasks.errors import (
    EmbedqError,
    FileTooLarge,
    InvalidFile,
    InvalidUnicode,
    InvalidValue,
    MissingParameter,
    NotStored,
    RangeNotSatisfiable,
    UnsupportedMediaType,
)
from tasks.records.files import Purpose
from tasks.storage.writer import TEMPORARY, translated
from tasks.wire.json_limits import has_more_parts
from worker_config.settings import Settings

# Downloads.


@dataclass(frozen=True, slots=True)
class Content:
    """A stored object that a caller may read.

    Attributes:
        stored: its name in the storage.
        tag: never the same for other bytes.
        filename: under which a browser keeps it.
        gone: what the caller is told if it is not there any more.
    """

    stored: str
    size_bytes: int
    tag: str
    filename: str
    gone: EmbedqError = field(repr=False)


Download = Callable[[Content], Awaitable[Response]]

_ONE_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


# Not Starlette's FileResponse: it refuses ranges in plain text, and a bucket has no file.
async def download(storage: AsyncStorage, wanted: str | None, known: str | None, content: Content) -> Response:
    """The bytes as an answer; `wanted` and `known`: the headers Range and If-Range of the request.

    Raises:
        EmbedqError: `content.gone`.
        RangeNotSatisfiable: the range begins behind the end.
        StorageUnavailable: they cannot be read now.
    """
    etag, size = f'"{content.tag}"', content.size_bytes
    part = _range(wanted, size) if known in {None, etag} else None
    span = range(size) if part is None else part
    try:
        chunks = await storage.chunks(content.stored, span.start, len(span))
    except NotStored:
        raise content.gone from None
    headers = {
        "accept-ranges": "bytes",
        "cache-control": "private",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(content.filename, safe='')}",
        "content-length": str(len(span)),
        "etag": etag,
    }
    if part is not None:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    return StreamingResponse(chunks, 200 if part is None else 206, headers, "application/octet-stream")


def _range(wanted: str | None, size: int) -> range | None:
    """The positions that a Range header asks for; None for all of them.

    Several ranges, other units and nonsense count as no range: a server may answer with the whole (RFC 9110, 14.2).
    """
    match = _ONE_RANGE.fullmatch(wanted) if wanted else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(int(match[2] or size), size - 1)
        if match[2] and int(match[2]) < first:
            return None
    if first >= size:
        raise RangeNotSatisfiable(size)
    return range(first, last + 1)


# Uploads.

_FORM_BYTES = 2**20
"""Room for the other parts of a form, and for what stands between them."""
_MAX_FIELDS, _MAX_FIELD_BYTES = 64, 65_536
_MAX_FILENAME_CHARS = 255
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 2_592_000
_UPLOADED = tuple(purpose for purpose in Purpose if purpose is not Purpose.BATCH_OUTPUT)
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
_BOM = b"\xef\xbb\xbf"
_PROBED_LINES = 50_000
"""As many requests as a batch may have. A file that has none in so many lines cannot be a batch."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What was uploaded. `file`: at its beginning, on the disk if it is large. `expires_in_s`: None for never."""

    filename: str
    purpose: Purpose
    size_bytes: int
    expires_in_s: int | None
    file: BinaryIO = field(repr=False)


def least_bytes(content_length: str, max_file_bytes: int) -> int:
    """The least size that the file can have by the length of its form; raises `FileTooLarge`."""
    least = max(int(content_length) - _FORM_BYTES, 0) if content_length.isdecimal() else 0
    if least > max_file_bytes:
        raise _too_large(max_file_bytes)
    return least


@asynccontextmanager
async def received(request: Request, settings: Settings) -> AsyncIterator[Upload]:
    """What a form of multipart/form-data brings, within the block.

    Raises:
        UnsupportedMediaType, InvalidValue, InvalidUnicode: the body is not such a form.
        MissingParameter, InvalidFile, FileTooLarge: it has no file, or none that its purpose can use.
        DiskFull, StorageUnavailable: the temporary folder does not take it.
        CallerGone: the client closed the connection first.
    """
    came = 0

    async def receive() -> Message:
        nonlocal came
        message = await request.receive()
        came += len(message.get("body", b""))
        if came > settings.max_file_bytes + _FORM_BYTES:
            raise _too_large(settings.max_file_bytes)
        return message

    form = await _form(Request(request.scope, receive))
    try:
        upload = _upload(form, settings)
        if came - upload.size_bytes > _FORM_BYTES:
            raise InvalidValue(f"The form has more than {_FORM_BYTES:,} bytes besides the file.")
        if upload.purpose is Purpose.BATCH:
            await asyncio.to_thread(_require_request, upload.file, settings)
        yield upload
    finally:
        await form.close()


async def _form(request: Request) -> FormData:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
        raise UnsupportedMediaType("Send the file with `Content-Type: multipart/form-data`.")
    try:
        with translated(TEMPORARY):
            return await request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES)
    except HTTPException as error:
        raise InvalidValue(f"The body is not a form that can be used: {error.detail}") from None
    except UnicodeError:
        raise InvalidUnicode("The form is not text in UTF-8.") from None
    except ClientDisconnect:
        raise CallerGone from None


def _upload(form: FormData, settings: Settings) -> Upload:
    if any(isinstance(value, UploadFile) and name != "file" for name, value in form.multi_items()):
        raise InvalidValue("A file must come in the part named 'file'.", param="file")
    file, purpose = form.get("file"), form.get("purpose")
    if file is None:
        raise MissingParameter("Missing required parameter: 'file'.", param="file")
    if not isinstance(file, UploadFile):
        raise InvalidValue("The part 'file' must be a file, with a name.", param="file")
    if purpose is None:
        raise MissingParameter("Missing required parameter: 'purpose'.", param="purpose")
    if purpose not in _UPLOADED:
        allowed = ", ".join(f"'{purpose}'" for purpose in _UPLOADED)
        raise InvalidValue(f"purpose must be one of {allowed}.", param="purpose")
    kind, name, size_bytes = Purpose(str(purpose)), file.filename or "", file.size or 0
    if kind is Purpose.BATCH and size_bytes > settings.max_batch_file_bytes:
        raise _too_large(settings.max_batch_file_bytes, "EMBEDQ_MAX_BATCH_FILE_BYTES")
    if size_bytes > settings.max_file_bytes:
        raise _too_large(settings.max_file_bytes)
    if not 0 < len(name) <= _MAX_FILENAME_CHARS:
        raise InvalidValue(f"The file's name must have 1 to {_MAX_FILENAME_CHARS} characters.", param="file")
    if any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        raise InvalidValue("The file's name holds control characters.", param="file")
    if not size_bytes and kind is not Purpose.USER_DATA:  # there it says that a document has no text now
        raise InvalidFile("The file is empty.", param="file")
    if kind is Purpose.BATCH and not name.lower().endswith(".jsonl"):
        raise InvalidFile("Invalid file format for Batch API. Must be .jsonl", param="file")
    return Upload(name, kind, size_bytes, _expiry_s(form, kind), file.file)


def _expiry_s(form: FormData, purpose: Purpose) -> int | None:
    anchor, seconds = form.get(_ANCHOR), str(form.get(_SECONDS, ""))
    if anchor is None and not seconds:
        return MAX_EXPIRY_S if purpose is Purpose.BATCH else None
    if anchor != "created_at":
        raise InvalidValue("expires_after[anchor] must be 'created_at'.", param=_ANCHOR)
    if not re.fullmatch("[0-9]{1,10}", seconds) or not MIN_EXPIRY_S <= int(seconds) <= MAX_EXPIRY_S:
        raise InvalidValue(f"expires_after[seconds] must be {MIN_EXPIRY_S} to {MAX_EXPIRY_S}.", param=_SECONDS)
    return int(seconds)


def _require_request(file: BinaryIO, settings: Settings) -> None:
    # A longer line comes in pieces. The check of the batch refuses it; here it only must not fill the memory.
    lines = iter(lambda: file.readline(settings.max_body_bytes), b"")
    found = any(_is_object(line, settings.max_body_lists) for line in islice(lines, _PROBED_LINES))
    file.seek(0)
    if not found:
        message = "Invalid file format for Batch API: no line of this .jsonl file is a JSON object."
        raise InvalidFile(message, param="file")


def _is_object(line: bytes, max_lists: int) -> bool:
    line = line.removeprefix(_BOM)
    if not line.lstrip().startswith(b"{") or has_more_parts(line, max_lists):
        return False
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _too_large(limit: int, name: str = "EMBEDQ_MAX_FILE_BYTES") -> FileTooLarge:
    return FileTooLarge(f"The file is larger than {limit:,} bytes ({name}). Split it.", param="file")

"""Files on their way through HTTP: the form of an upload, and stored bytes as an answer, whole or a range of them."""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from api.async_storage import AsyncStorage
from api.error_responses import CallerGone
from api.load_limits import Held
from tasks.errors import EmbedqError, Invalid, NotStored, RangeNotSatisfiable, Refused
from tasks.storage.folder import TEMPORARY, translated

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
        Refused: the range begins behind the end.
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
_MAX_FIELDS, _MAX_FIELD_BYTES = 16, 4096
_IN_MEMORY_BYTES = 2**20
"""Starlette keeps as much of a file in memory, and the rest on the disk."""
logging.getLogger("python_multipart").setLevel(logging.ERROR)  # it warns of each bad form


@dataclass(frozen=True, slots=True)
class Upload:
    """The file and the fields of a form. `file` is at its beginning, and on the disk if it is large."""

    filename: str
    size_bytes: int
    file: BinaryIO = field(repr=False)
    fields: Mapping[str, str] = field(repr=False)


@asynccontextmanager
async def received(
    request: Request, max_file_bytes: int, hold: Callable[[int], Awaitable[None]], held: Held
) -> AsyncIterator[Upload]:
    """What a form of multipart/form-data brings, within the block.

    `hold` gets the least size that the file can have by the length of its form, before the body is read: whoever is
    over the quota would otherwise send gigabytes to hear of it. It is called again whenever bytes came. `held` has what
    is in memory.

    Raises:
        EmbedqError: `hold` does.
        Refused, Invalid: the body is not such a form.
        Invalid, Refused: it has no file, or more than a file may have.
        DiskFull, StorageUnavailable: the temporary folder does not take it.
        Overloaded: too many large bodies are here already.
        CallerGone: the client closed the connection first.
    """
    announced = request.headers.get("content-length", "")
    least = max(int(announced) - _FORM_BYTES, 0) if announced.isdecimal() else 0
    if least > max_file_bytes:
        raise too_large(max_file_bytes)
    await hold(least)
    came = 0

    async def receive() -> Message:
        nonlocal came
        message = await request.receive()
        came += len(message.get("body", b""))
        if came > max_file_bytes + _FORM_BYTES:
            raise too_large(max_file_bytes)
        held.grow_to(min(came, _IN_MEMORY_BYTES))
        await hold(least)
        return message

    form = await _form(Request(request.scope, receive))
    try:
        upload = _upload(form)
        if came - upload.size_bytes > _FORM_BYTES:
            raise Invalid("invalid_value", f"The form has more than {_FORM_BYTES:,} bytes besides the file.")
        yield upload
    finally:
        await form.close()


async def _form(request: Request) -> FormData:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
        raise Refused("unsupported_media_type", "Send the file with `Content-Type: multipart/form-data`.")
    try:
        with translated(TEMPORARY):
            return await request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=_MAX_FIELD_BYTES)
    except UnicodeError:
        raise Invalid("invalid_unicode", "The form is not text in UTF-8.") from None
    except ClientDisconnect:
        raise CallerGone from None


def _upload(form: FormData) -> Upload:
    file, parts = form.get("file"), form.multi_items()
    if not isinstance(file, UploadFile):
        other = file is not None or any(isinstance(value, UploadFile) for _, value in parts)
        code = "invalid_value" if other else "missing_required_parameter"
        raise Invalid(code, "The form needs a part 'file': a file with a name.", param="file")
    fields = {name: value for name, value in parts if isinstance(value, str)}
    return Upload(file.filename or "", file.size or 0, file.file, fields)


def too_large(limit: int) -> Refused:
    """The error for a file above `EMBEDQ_MAX_FILE_BYTES`."""
    detail = f"The file is larger than {limit:,} bytes (EMBEDQ_MAX_FILE_BYTES). Split it."
    return Refused("file_too_large", detail, param="file")

"""A stored object as an answer: all of its bytes, or those that a Range header asks for."""

import asyncio
import re
from contextlib import nullcontext
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.answer.description import Answer, ResponseHeader, header
from api.async_storage import AsyncStorage
from api.error_responses import note, problem
from api.request.api_keys import grant_of
from tasks.errors import EmbedqError, NotStored, RangeNotSatisfiable

# The Range header of HTTP (RFC 9110, 14.2). Only one range of bytes is supported.

_ONE_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.IGNORECASE)


def byte_range(wanted: str | None, size: int) -> range | None:
    """The positions that a Range header asks for of `size` bytes; None for all of them.

    Several ranges, other units and nonsense count as no range: a server may answer with the whole.

    Raises:
        RangeNotSatisfiable: it begins behind the end.
    """
    match = _ONE_RANGE.fullmatch(wanted) if wanted else None
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        first, last = max(0, size - int(match[2])), size - 1
    else:
        first, last = int(match[1]), min(int(match[2]) if match[2] else size - 1, size - 1)
        if match[2] and int(match[2]) < first:
            return None
    if first >= size:
        raise RangeNotSatisfiable(f"The file has {size} bytes; the Range header asks for none of them.")
    return range(first, last + 1)


_BYTES = "application/octet-stream"
_OF_BOTH = (
    ResponseHeader("ETag", "Never the same for other bytes.", required=True),
    ResponseHeader("Accept-Ranges", "`bytes`.", required=True),
    ResponseHeader("Content-Disposition", "The name of the file.", required=True),
)
_PIECE = ResponseHeader("Content-Range", "Which bytes, of how many.", required=True)
CONTENT_ANSWERS = (
    Answer(200, media_types=(_BYTES,), headers=_OF_BOTH),
    Answer(206, media_types=(_BYTES,), headers=(*_OF_BOTH, _PIECE)),
)
RANGE = (
    header("Range", "One range of bytes.", example="bytes=0-0"),
    header("If-Range", "The `ETag` that is known: `Range` counts only while it is still so."),
)
"""What `content` reads."""


async def content(
    request: Request,
    storage: AsyncStorage,
    stored: str,
    *,
    size_bytes: int,
    tag: str,
    filename: str,
    gone: EmbedqError,
) -> Response:
    """The answer. `tag`: never the same for other bytes.

    Raises:
        EmbedqError: `gone`: there is no such object any more.
        StorageUnavailable: it cannot be read now.
    """
    etag = f'"{tag}"'
    wanted = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    try:
        part = byte_range(wanted, size_bytes)
    except RangeNotSatisfiable as error:
        note(request.scope, error)
        refusal = problem(error, instance=request.url.path)
        refusal.headers["content-range"] = f"bytes */{size_bytes}"
        return refusal
    span = part if part is not None else range(size_bytes)
    try:
        chunks = await storage.chunks(stored, span.start, len(span))
    except NotStored:
        raise gone from None
    headers = {
        "accept-ranges": "bytes",
        "cache-control": "private",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(filename, safe='')}",
        "content-length": str(len(span)),
        "etag": etag,
    }
    if part is not None:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size_bytes}"
    return _Download(chunks, 200 if part is None else 206, headers, _BYTES)


class _Download(StreamingResponse):
    """The response. It ends with its caller's right: bytes are missing then, so the server closes the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the bytes."""
        grant = grant_of(scope)
        allowed = asyncio.timeout(None)
        try:
            async with allowed:
                with nullcontext() if grant is None else grant.followed(_End(allowed)):
                    await super().__call__(scope, receive, send)
        except TimeoutError:
            if not allowed.expired():  # a defect of the storage's, not the end of the right
                raise


class _End:
    """Ends a block. Whoever reads slowly is not waited for."""

    def __init__(self, block: asyncio.Timeout) -> None:
        self._block = block

    def leave(self) -> None:
        """Its caller may not stay."""
        if self._block.when() is None:  # it cannot be told twice
            self._block.reschedule(0)

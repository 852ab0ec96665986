"""A stored object as an answer: all of its bytes, or those that a Range header asks for."""

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from api.problem import problem
from api.ranges import byte_range
from api.storage import AsyncStorage
from tasks.errors import RangeNotSatisfiable

BYTES = "application/octet-stream"


async def content(
    request: Request, storage: AsyncStorage, stored: str, *, size_bytes: int, tag: str, filename: str
) -> Response:
    """The answer. `tag`: never the same for other bytes.

    Raises:
        NotStored: there is no such object (any more).
        StorageUnavailable: it cannot be read now.
    """
    etag = f'"{tag}"'
    wanted = request.headers.get("range") if request.headers.get("if-range", etag) == etag else None
    try:
        part = byte_range(wanted, size_bytes)
    except RangeNotSatisfiable as error:
        refusal = problem(error, instance=request.url.path)
        refusal.headers["content-range"] = f"bytes */{size_bytes}"
        return refusal
    span = part if part is not None else range(size_bytes)
    chunks = await storage.chunks(stored, span.start, len(span))
    headers = {
        "accept-ranges": "bytes",
        "cache-control": "private",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(filename, safe='')}",
        "content-length": str(len(span)),
        "etag": etag,
        "x-content-type-options": "nosniff",  # it is a stranger's file on this origin
    }
    if part is not None:
        headers["content-range"] = f"bytes {part.start}-{part.stop - 1}/{size_bytes}"
    return StreamingResponse(chunks, 200 if part is None else 206, headers, BYTES)

"""The console: a page for browsers, and the scripts and styles that it loads.

The files are served from a table that is made once, so no request can name another file. They hold no data: the page
asks for that with the key of the person in front of it, by the routes that every client has.
"""

import gzip
import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Self

from starlette.requests import Request
from starlette.responses import Response

from api.answer.description import Answer, ResponseHeader, header
from api.families.route import PUBLIC, Family
from tasks.errors import RouteNotFound

STATIC = Path(__file__).parents[1] / "console" / "static"
PAGE = "index.html"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing inline, nothing of another host, and no frame around the page."""

HTML = "text/html"
_MEDIA_TYPES = {
    ".html": HTML,
    ".css": "text/css",
    ".js": "text/javascript",
    ".txt": "text/plain",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Asked for again each time, and mostly answered with 304: no old script ever meets a new API.
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "vary": "Accept, Accept-Encoding",
}
_GZIP = re.compile(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")
"""Named, and not refused by a weight of zero."""
_ETAG = ResponseHeader("ETag", "Of the file.", required=True)

IF_NONE_MATCH = header("If-None-Match", "The `ETag` of a file of the console that the browser has.")
NOT_MODIFIED = Answer(304, description="The browser has the file.", headers=(_ETAG,))
ANSWERS = (Answer(200, media_types=tuple(_MEDIA_TYPES.values()), headers=(_ETAG,)), NOT_MODIFIED)


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, ready to be sent in both forms."""

    media_type: str
    plain: bytes
    gzipped: bytes
    etag: str

    @classmethod
    def from_path(cls, path: Path) -> Self:
        """The file as it is now."""
        plain = path.read_bytes()
        # Weak: it stands for both forms.
        etag = f'W/"{sha256(plain).hexdigest()[:32]}"'
        return cls(_MEDIA_TYPES[path.suffix], plain, gzip.compress(plain, 9, mtime=0), etag)


@cache
def static_files() -> dict[str, StaticFile]:
    """All files of the console by their path below `/console/`. Made once in a process: packing takes some 20 ms."""
    paths = (path for path in STATIC.rglob("*") if path.suffix in _MEDIA_TYPES)
    return {path.relative_to(STATIC).as_posix(): StaticFile.from_path(path) for path in paths}


def file_response(request: Request, name: str) -> Response:
    """A file of the console, or 304 when the browser has it.

    Raises:
        RouteNotFound: there is no such file.
    """
    file = static_files().get(name)
    if file is None:
        raise RouteNotFound("The console has no such file. Its page is /console.")
    headers = {**_HEADERS, "etag": file.etag}
    if file.etag in (request.headers.get("if-none-match") or ""):
        return Response(status_code=304, headers=headers)
    if _GZIP.search(request.headers.get("accept-encoding") or ""):
        return Response(file.gzipped, headers={**headers, "content-encoding": "gzip"}, media_type=file.media_type)
    return Response(file.plain, headers=headers, media_type=file.media_type)


def is_browser(request: Request) -> bool:
    """Whether the request comes from the address bar of a browser: other clients do not ask for HTML."""
    return HTML in (request.headers.get("accept") or "")


router = Family("console")


@router.describe("GET", "/console", *ANSWERS, scopes=PUBLIC, reads=(IF_NONE_MATCH,))
async def read_page(request: Request) -> Response:
    """Returns the page of the console. It is open, also where API keys are needed: it holds no data."""
    return file_response(request, PAGE)


@router.describe(
    "GET", "/console/{path:path}", *ANSWERS, scopes=PUBLIC, errors=(RouteNotFound,), reads=(IF_NONE_MATCH,)
)
async def read_file(request: Request, path: str) -> Response:
    """Returns a script or a style of the console."""
    return file_response(request, path)

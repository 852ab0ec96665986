"""Pages for browsers, with the scripts and styles that they load: the console, and the one that shows the document.

They hold no data: a page asks for that with the key of the person in front of it, as every client does. So they are
open, also where API keys are needed. The document's page is Swagger UI as its authors build it (`api/swagger_ui/`, see
VENDORED.md there). Files are sent whole: Starlette answers a `Range` that it cannot serve in plain text.
"""

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

CONSOLE = Path(__file__).parent / "console" / "static"
_REFERENCE = Path(__file__).parent / "swagger_ui"
_HEADERS = {
    # Asked for again each time, and mostly answered with 304: no old script ever meets a new API.
    "cache-control": "no-cache",
    # Nothing inline, nothing of another host, and no frame around the page.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "vary": "Accept",  # the console is at `/` too, where programs get something else
}


class WholeFile(FileResponse):
    """A file, whatever `Range` says, as a server may do (RFC 9110, 14.2)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        self.headers["accept-ranges"] = "none"
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


class PageFiles(StaticFiles):
    """The files of a folder as an ASGI app."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Response:
        """A file, or 304 where the browser has it."""
        found = super().file_response(full_path, stat_result, scope, status_code)
        if isinstance(found, FileResponse):
            found = WholeFile(full_path, status_code, stat_result=stat_result)
        found.headers.update(_HEADERS)
        return found


async def console() -> WholeFile:
    """The page of the console."""
    return WholeFile(CONSOLE / "index.html", headers=_HEADERS)


async def _reference() -> WholeFile:
    return WholeFile(_REFERENCE / "page.html", headers=_HEADERS)


def add_pages(app: FastAPI) -> None:
    """Serves the pages at `/console` and `/docs`, and what they load below that."""
    for path, page, folder in (("/console", console, CONSOLE), ("/docs", _reference, _REFERENCE)):
        app.add_api_route(path, page, response_class=FileResponse, include_in_schema=False)
        app.mount(path, PageFiles(directory=folder))

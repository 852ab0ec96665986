"""The console: a page for browsers, and the scripts and styles that it loads.

They hold no data: the page asks for that with the key of the person in front of it, as every client does.
"""

from pathlib import Path
from typing import Any

from starlette.responses import Response

from api.whole_files import WholeFile, WholeFiles

STATIC = Path(__file__).parent / "console" / "static"
_HEADERS = {
    # Asked for again each time, and mostly answered with 304: no old script ever meets a new API.
    "cache-control": "no-cache",
    # Nothing inline, nothing of another host, and no frame around the page.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "vary": "Accept",
}


class ConsoleFiles(WholeFiles):
    """The files of the console as an ASGI app."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, or 304 where the browser has it."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_HEADERS)
        return response


async def page() -> WholeFile:
    """The page itself."""
    return WholeFile(STATIC / "index.html", headers=_HEADERS)

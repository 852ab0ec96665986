"""Files of this package over HTTP, always whole. Starlette answers a `Range` that it cannot serve in plain text."""

from typing import Any

from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send


class WholeFile(FileResponse):
    """A file, whatever `Range` says, as a server may do (RFC 9110, 14.2)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it."""
        self.headers["accept-ranges"] = "none"
        headers = [(name, value) for name, value in scope["headers"] if name != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


class WholeFiles(StaticFiles):
    """The files of a folder as an ASGI app."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Response:
        """A file, or 304 where the browser has it."""
        found = super().file_response(full_path, stat_result, scope, status_code)
        if isinstance(found, FileResponse):
            return WholeFile(full_path, status_code, stat_result=stat_result)
        return found

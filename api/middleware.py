"""What happens around every request."""

import re
import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BARE = re.compile(r"/(embeddings|models|files|batches)(/|$)")
"""Clients of OpenAI may be set up with a base address without `/v1`."""


def new_request_id() -> bytes:
    """A name for a request whose caller gave it none."""
    return b"req_" + secrets.token_hex(12).encode()


class Paths:
    """One form of each path and method, so that routes need no second one.

    `//v1/tasks` is of base addresses that end with a slash, `/v1/tasks/` of clients that end paths with one, `/files`
    of those that leave out `/v1`. A HEAD is a GET whose answer ends with its head.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] == "http":
            scope["path"] = _one_form(scope["path"])
            if scope["method"] == "HEAD":
                # A server drops the bodies of answers by the method of its own scope; apps see a GET.
                scope, send = {**scope, "method": "GET"}, _head_of(send)
        await self._app(scope, receive, send)


def _one_form(path: str) -> str:
    path = "/" + path.strip("/")
    return f"/v1{path}" if _BARE.match(path) else path


def _head_of(send: Send) -> Send:
    ended = False

    async def send_head(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body"})  # not after the body, which may be large
            ended = True
        elif not ended:
            await send(message)

    return send_head

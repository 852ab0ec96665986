"""What happens around every request: one form of its path, an id, headers, counts, the log, a 500 for defects."""

import logging
import re
import time
import traceback
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import error_responses as errors
from api.auth import caller_of
from api.browser_rules import BrowserRules
from api.log_tally import Tally
from api.metrics import Metrics
from api.schemas.answer_parts import set_prefix
from api.security_headers import security_headers
from tasks.errors import EmbedqError, InternalError, NotFound, Unauthenticated
from worker_config.logs import begin_request, with_fields
from worker_config.telemetry import RequestSpan, describe_request, request_span

_log = logging.getLogger(__name__)
_access = logging.getLogger("api.access")

_BARE = re.compile(r"/(embeddings|models|files|batches)(/|$)")
"""Clients of OpenAI may be set up with a base address without `/v1`."""


class Paths:
    """One form of each path and method, so that routes need no second one.

    `//v1/tasks` is of base addresses that end with a slash, `/v1/tasks/` of clients that end paths with one, `/files`
    of those that leave out `/v1`. A HEAD is a GET whose answer ends with its head.

    Behind a proxy that takes a prefix off and names it in `X-Forwarded-Prefix`, paths in answers begin with it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] == "http":
            scope["path"] = _one_form(scope["path"])
            set_prefix(_header(scope, b"x-forwarded-prefix"))
            if scope["method"] == "HEAD":
                # A server drops the bodies of answers by the method of its own scope; apps see a GET.
                scope, send = {**scope, "method": "GET"}, _head_of(send)
        await self._app(scope, receive, send)


def _one_form(path: str) -> str:
    path = "/" + path.lstrip("/")
    if len(path) > 1:
        path = path.removesuffix("/")
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


_FRAMES = 24
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Requests:
    """The outermost layer but `Paths`: an id and security headers, counts, latencies, the log, a 500 for defects.

    Pure ASGI: Starlette's convenient base class would cost a task per request.

    Args:
        app: the layers inside.
        metrics: counts requests.
        rules: refuses those of web pages that may not call.
        cors: makes the answers of an app readable for the pages that may call. Here for those that are no answers of
            the layers inside: without it a page would not learn why its request failed.
        access_log: each answered request is logged.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        rules: BrowserRules,
        *,
        cors: Callable[[ASGIApp], ASGIApp],
        access_log: bool,
    ) -> None:
        self._app = cors(app)
        self._cors = cors
        self._metrics = metrics
        self._rules = rules
        self._access_log = access_log
        self._without_key = Tally(_log, "requests without a known API key")
        if access_log:
            _access.setLevel(logging.INFO)  # it was asked for, whatever the level of the others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        begin_request(request_id.decode())
        with request_span(scope["path"], _header(scope, b"traceparent")) as span:
            await self._answer(scope, receive, send, request_id, span)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: bytes, span: RequestSpan) -> None:
        started = time.perf_counter()
        status = sent_bytes = 0

        async def labelled(message: Message) -> None:
            nonlocal status, sent_bytes
            if message["type"] == "http.response.start":
                status, own = message["status"], message["headers"]
                message["headers"] = [*own, *security_headers(own), (b"x-request-id", request_id)]
            else:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            self._rules.check(scope)
            _require_path(scope)
            await self._app(scope, receive, labelled)
        except EmbedqError as refusal:
            answer = errors.response(refusal, scope, scope["path"])
            await self._cors(answer)(scope, receive, labelled)
        except Exception as error:  # noqa: BLE001 - the boundary of the process: a defect answers 500 and the server lives
            _log_defect(request_id, error)
            if not status:  # otherwise the response is half out, and the server closes the connection
                answer = errors.response(InternalError(_apology(request_id)), scope, scope["path"])
                await self._cors(answer)(scope, receive, labelled)
        finally:
            took_s = time.perf_counter() - started
            route = _route(scope)
            self._metrics.served(scope, route, status, took_s)
            if span.is_recording():
                who = {f"embedq.{name}": value or "" for name, value in _who(scope).items()}
                describe_request(span, scope["method"], route, status, who)
            if status == Unauthenticated.status:
                client = scope.get("client")
                self._without_key.add(f"from {client[0]}" if client else "from an unknown address")
            if self._access_log:
                _log_access(scope, status, took_s, sent_bytes)


def _require_path(scope: Scope) -> None:
    # Starlette's patterns end with `$`, which also fits before a newline: /v1/models/%0A would be the list.
    if scope["path"].endswith("\n"):
        raise NotFound(
            "route_not_found", "There is no such path: it ends with a line break. See /openapi.json for what there is."
        )


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value)
    return errors.new_request_id()


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def _route(scope: Scope) -> str:
    # The template, never the path: ids would make a time series each.
    return getattr(scope.get("route"), "path", "unmatched")


def _who(scope: Scope) -> dict[str, str | None]:
    """What a person calls the caller, and whose what it makes is; None: nobody has asked who it is."""
    # Both: another tenant may have the name later, and the id says nothing to a person.
    key = caller_of(scope)
    return {"key": None, "owner": None} if key is None else {"key": key.name, "owner": key.owner}


def _log_access(scope: Scope, status: int, took_s: float, sent_bytes: int) -> None:
    fields = with_fields(
        method=scope["method"],
        route=_route(scope),
        status=status,
        seconds=round(took_s, 6),
        bytes=sent_bytes,
        **_who(scope),
    )
    _access.info("answered", extra=fields)


def _apology(request_id: bytes) -> str:
    return f"An unexpected error. It is in the server's log under request {request_id.decode()}."


def _log_defect(request_id: bytes, error: Exception) -> None:
    # Type and places only: the message of an exception may hold what somebody submitted.
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-_FRAMES:]]
    _log.error("request %s failed: %s at %s", request_id.decode(), type(error).__name__, " > ".join(places))

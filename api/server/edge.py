"""The outermost layer: id and security headers on every response, counts, latencies, access log, a 500 for defects."""

import logging
import re
import time
import traceback

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import error_responses
from api.answer.security_headers import security_headers
from api.middleware import new_request_id
from api.queue.metrics import Metrics
from api.request.memory_budget import OWNER, release
from api.server.origins import Visitors
from api.server.overload import leave
from tasks.errors import InternalError, RouteNotFound
from worker_config.logs import with_fields
from worker_config.subject import Subject, set_subject
from worker_config.traces import Traces

_log = logging.getLogger(__name__)
_access = logging.getLogger("api.access")
ENDLESS = "embedq.endless"
"""Set in the scope by answers that last as long as the client likes: their latency is the time to their head."""
_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class Edge:
    """Pure ASGI middleware; Starlette's convenient base class would cost a task per request.

    Args:
        app: the layers inside.
        metrics: counts requests.
        visitors: refuses those of web pages that may not call.
        access_log: each answered request is logged.
        traces: of this process; None: there are none.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        visitors: Visitors,
        *,
        access_log: bool = False,
        traces: Traces | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._visitors = visitors
        self._access_log = access_log
        self._traces = traces
        if access_log:
            _access.setLevel(logging.INFO)  # it was asked for, whatever the level of the others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of whatever type."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = time.perf_counter()
        trace = None if self._traces is None else self._traces.begin(scope["path"], _traceparent(scope))
        set_subject(Subject(request_id.decode(), trace=trace))
        status = sent_bytes = 0
        head_s = 0.0

        async def labelled(message: Message) -> None:
            nonlocal status, head_s, sent_bytes
            if message["type"] == "http.response.start":
                status, head_s = message["status"], time.perf_counter() - started
                own = message["headers"]
                message["headers"] = [*own, *security_headers(own), (b"x-request-id", request_id)]
            elif self._access_log:
                sent_bytes += len(message.get("body", b""))
            await send(message)

        try:
            if refusal := self._visitors.check(scope) or _nowhere(scope):
                await error_responses.response(refusal, scope, scope["path"])(scope, receive, labelled)
            else:
                await self._app(scope, receive, labelled)
        except Exception as error:  # noqa: BLE001 - the boundary of the process: a defect answers 500 and the server lives
            _log_defect(request_id, error)
            if not status:  # otherwise the response is half out, and the server closes the connection
                answer = error_responses.response(InternalError(_apology(request_id)), scope, scope["path"])
                await answer(scope, receive, labelled)
        finally:
            release(scope)
            leave(scope)
            took_s = head_s if scope.get(ENDLESS) else time.perf_counter() - started
            self._visitors.answered(scope, status)
            route = _route(scope)
            self._metrics.served(scope["method"], route, status, took_s)
            self._metrics.explained(scope, route, status)
            if trace is not None:
                trace.end(scope["method"], route, status, {"embedq.owner": scope.get(OWNER, "")})
            if self._access_log:
                _log_access(scope, status, took_s, sent_bytes)


def _nowhere(scope: Scope) -> RouteNotFound | None:
    # Starlette's patterns end with `$`, which also fits before a newline: /v1/models/%0A would be the list.
    if not scope["path"].endswith("\n"):
        return None
    return RouteNotFound("There is no such path: it ends with a line break. See /openapi.json for what there is.")


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _SANE_ID.fullmatch(value):
            return bytes(value)
    return new_request_id()


def _traceparent(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"traceparent"), "")


def _route(scope: Scope) -> str:
    # The template, never the path: ids would make a time series each.
    return getattr(scope.get("route"), "path", "unmatched")


def _log_access(scope: Scope, status: int, took_s: float, sent_bytes: int) -> None:
    fields = with_fields(
        method=scope["method"],
        route=_route(scope),
        status=status,
        seconds=round(took_s, 6),
        bytes=sent_bytes,
        owner=scope.get(OWNER),
    )
    _access.info("answered", extra=fields)


def _apology(request_id: bytes) -> str:
    return f"An unexpected error. It is in the server's log under request {request_id.decode()}."


def _log_defect(request_id: bytes, error: Exception) -> None:
    # Type and place only: the message of an exception may hold what somebody submitted.
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "unknown place"
    _log.error("request %s failed: %s at %s", request_id.decode(), type(error).__name__, place)

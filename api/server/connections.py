"""All connections of one process: makes the protocol of each, and ends those that keep the process waiting."""

import asyncio
import logging
import resource
from collections import OrderedDict
from typing import Any, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from api.middleware import new_request_id
from api.server.http_protocol import Limits, Protocol
from api.server.log_throttle import Tally

_log = logging.getLogger(__name__)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n"
    b"x-request-id: %b\r\n\r\n"
)
_IDLE_TRIED = 16
"""Connections that are asked to make room for another; most do."""
_SHARE_OF_DESCRIPTORS = 3, 4
"""For connections of callers; the rest is for Redis, files and libraries."""


class Connections:
    """Called by uvicorn like the class of a protocol.

    Attributes:
        idle: connections that wait for a request, the longest waiting first.
    """

    def __init__(self, limits: Limits = Limits()) -> None:
        self._limits = limits
        self.idle: OrderedDict[Protocol, None] = OrderedDict()
        self._state: ServerState | None = None
        self._endings = Tally(_log, "connections were ended")

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> asyncio.Protocol:
        """The protocol of a connection that has just been accepted."""
        if len(server_state.connections) >= self._limits.connections:
            made_room = self._make_room()
            which = "idle, to make room among" if made_room else "more than"
            self._endings.add(f"{which} {self._limits.connections:,} at a time (EMBEDQ_MAX_CONNECTIONS)")
            if not made_room:
                return _Full()
        if self._state is None:
            self._state = server_state
            asyncio.get_running_loop().call_later(self._limits.tick_s, self._tick)
        return Protocol(
            config, server_state, app_state, _loop, limits=self._limits, ended=self._endings.add, idle=self.idle
        )

    def _make_room(self) -> bool:
        # A peer that keeps connections without using them must not lock out others.
        for _ in range(min(_IDLE_TRIED, len(self.idle))):
            connection, _none = self.idle.popitem(last=False)
            if connection.make_room():
                return True
            self.idle[connection] = None
        return False

    def _tick(self) -> None:
        state, self._state = self._state, None
        if state is None or not state.connections:
            return  # the next connection starts it again
        self._state = state
        # First, so that a defect met below costs one tick and not all of them.
        asyncio.get_running_loop().call_later(self._limits.tick_s, self._tick)
        for connection in list(state.connections):
            if isinstance(connection, Protocol):
                connection.tick()


class _Full(asyncio.Protocol):
    """Of a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        cast("asyncio.Transport", transport).write(_FULL % new_request_id())
        transport.close()


def affordable_connections(wanted: int) -> int:
    """`wanted`, or less where this process may not open so many files; raises the limit as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    share, of = _SHARE_OF_DESCRIPTORS
    needed = wanted * of // share + 1
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    affordable = max(1, soft * share // of)
    _log.warning(
        "%d connections at a time instead of EMBEDQ_MAX_CONNECTIONS=%d: this process may have %d files open "
        "(LimitNOFILE, ulimit -n)",
        affordable, wanted, soft,
    )  # fmt: skip
    return affordable

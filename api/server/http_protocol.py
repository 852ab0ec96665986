"""uvicorn's HTTP protocol with limits for what a peer may send and how long it may take, and fewer system calls."""

import asyncio
import fcntl
import sys
import termios
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import httptools
from starlette.types import Message
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api.answer.security_headers import security_headers
from api.error_responses import MEDIA_TYPE, problem
from api.middleware import new_request_id
from tasks.errors import EmbedqError, HeadTooLarge, InvalidHTTP, RequestTimeout


@dataclass(frozen=True, slots=True)
class Limits:
    """What a peer may send, and how long it may keep its connection waiting.

    Attributes:
        connections: at the same time. For one more, one that waits for a request is closed; if all are in use, it is
            answered 503.
        head_bytes: of a request line and its fields together, and of what a chunked body has beside its data.
        fields: of one head. Each costs some hundred bytes, however short it is.
        pipelined: requests that wait for the answer to an earlier one. Each costs about 3 kB.
        head_s: for a whole head, from the start of the connection or from its first byte.
        body_s: without a byte of a body that is due; also for all that comes of a body after its answer.
        write_s: without a byte of an answer that the peer's system took.
        tick_s: between two checks of the connections. Times are counted in ticks, so that a process that stood still
            does not blame its peers.
    """

    connections: int = 4096
    head_bytes: int = 65_536
    fields: int = 128
    pipelined: int = 100
    head_s: float = 10
    body_s: float = 30
    write_s: float = 30
    tick_s: float = 1


class Joined:
    """A transport that sends what was written in one turn of the event loop as one piece, when the turn ends.

    uvicorn writes a response's head and body apart, and uvloop sends each write at once: a system call and a packet
    more, which together cost a small request a tenth of its processor time.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._written = 0

    @property
    def sent_bytes(self) -> int:
        """How much of what was written the peer's system has taken.

        What this system's kernel holds for it does not count: it takes more only when a third of its buffer is free
        again, so that a peer which reads megabytes a minute would seem to stand still.
        """
        return self._written - self._transport.get_write_buffer_size() - self._held_by_kernel()

    def write(self, data: bytes) -> None:
        """Sends `data` when the present turn of the event loop is over; nothing, where the client has left by then."""
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def close(self) -> None:
        """Closes the connection when everything is sent."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _held_by_kernel(self) -> int:
        try:
            size = fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return 0  # no longer open, or no socket of TCP
        return int.from_bytes(size, sys.byteorder)

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            if not self._transport.is_closing():
                self._written += sum(map(len, held))
                self._transport.writelines(held)


_NOT_IN_FIELDS = bytes({*range(0x20), 0x7F} - {ord("\t")})
"""The two that end a line are among them, and are the only ones of a good head."""
_FRAMING = frozenset({b"connection", b"content-length", b"transfer-encoding"})
_STARTS: dict[bytes, bytes] = {}
"""The start of a field's line, by its name in an answer. Names come from the code, so they are few."""
_MAX_STARTS = 1000


def _start_of_line(name: bytes) -> bytes | None:
    """None: uvicorn looks at this name itself."""
    if not name.islower() or not name.replace(b"-", b"").isalnum() or name in _FRAMING:
        return None
    if len(_STARTS) < _MAX_STARTS:
        _STARTS[name] = name + b": "
    return name + b": "


class _Cycle(RequestResponseCycle):
    """A request and its answer.

    uvicorn searches the name and the value of each field of an answer for what must not be in it. That is a tenth of
    what a small request costs. Here the whole head is looked at once. Whatever is unusual is left for uvicorn.
    """

    def send(self, message: Message) -> Awaitable[None]:  # type: ignore[override]
        """Called by the application."""
        usual = message["type"] == "http.response.start" and "headers" in message
        if not usual or self.response_started or not self.keep_alive or self.flow.write_paused or self.access_log:
            return super().send(message)  # type: ignore[arg-type]
        return self._send_head(message)

    async def _send_head(self, message: Message) -> None:
        fields = [*self.default_headers, *message["headers"]]
        length: int | None = None
        lines = [STATUS_LINE[message["status"]]]
        for name, value in fields:
            start = _STARTS.get(name) or _start_of_line(name)
            if start is not None:
                lines += (start, value, b"\r\n")
            elif name == b"content-length" and length is None and value.isdigit():
                length = int(value)
                lines += (b"content-length: ", value, b"\r\n")
            else:
                length = None
                break
        lines.append(b"\r\n")
        head = b"".join(lines)
        controls = len(head) - len(head.translate(None, _NOT_IN_FIELDS))
        if length is None or self.disconnected or controls != 2 * (len(fields) + 2):
            await super().send(message)  # type: ignore[arg-type]
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        self.expected_content_length, self.chunked_encoding = length, False
        self.transport.write(head)


class Protocol(HttpToolsProtocol):
    """One connection.

    httptools has no limits, gathers a field by `+=`, and takes a body with `Upgrade` for another protocol's.

    Args:
        ended: called with the reason when this side ends the connection: the code of an error, or `answer_not_read`.
        idle: where the connection is as long as it waits for a request; behind those that have waited longer.
    """

    transport: Joined  # type: ignore[assignment]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits = Limits(),
        ended: Callable[[str], None] = lambda _why: None,
        idle: "OrderedDict[Protocol, None] | None" = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._ended = ended
        self._idle = OrderedDict() if idle is None else idle
        self._head_due = True
        self._head_begun = False
        self._head_bytes = 0
        self._idle_bytes = 0
        """Of a body, since its last byte of data: the framing of chunks, and trailers."""
        self._upgrading = False
        self._quiet_ticks = 0
        self._stuck_ticks = 0
        self._sent_bytes: int | None = None
        """At the last tick, if something waited to be sent then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        joined = Joined(cast("asyncio.Transport", transport), self.loop)
        super().connection_made(cast("asyncio.Transport", joined))
        self._idle[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._idle.pop(self, None)
        self._unset_keepalive_if_required()
        if self._head_due:
            self._head_bytes += len(data)
        else:
            self._idle_bytes += len(data)
            if not self.cycle.response_complete:
                self._quiet_ticks = 0
        try:
            self._feed(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, EmbedqError) else _malformed())
        except httptools.HttpParserError:
            self._refuse(_malformed())
        else:
            if self._head_due and self._is_head_too_large():
                self._refuse(_head_too_large(self._limits))
            elif self._idle_bytes > self._limits.head_bytes:
                self._refuse(InvalidHTTP("The body has too much beside its data: chunk extensions or trailers."))

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._head_begun = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called by the parser. What it raises ends the connection."""
        limits = self._limits
        if len(self.headers) > limits.fields or self._head_bytes > limits.head_bytes < self._size_of_head():
            raise _head_too_large(limits)  # what came may hold more than this head
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._upgrading = True
            return
        if len(self.pipeline) >= limits.pipelined:
            raise InvalidHTTP(f"More than {limits.pipelined} requests came before the answer to an earlier one.")
        super().on_headers_complete()
        self.cycle.__class__ = _Cycle  # uvicorn asks nobody which one to make; nothing of it has run yet
        self._head_due, self._idle_bytes, self._quiet_ticks = False, 0, 0
        self.headers = []  # trailers come as fields, too; they are no part of the head that the app sees

    def on_body(self, body: bytes) -> None:
        """Called by the parser."""
        self._idle_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if self._upgrading:
            return
        self._head_due, self._head_begun = True, False
        self._head_bytes, self._idle_bytes, self._quiet_ticks = 0, 0, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called when an answer is written."""
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None and self._head_due and not self._head_begun:
            self._idle[self] = None

    def make_room(self) -> bool:
        """Closes the connection, which waits for a request, unless its peer has not taken the last answer yet."""
        if self.transport.get_write_buffer_size():
            return False
        self.transport.close()
        return True

    def tick(self) -> None:
        """Ends the connection if its peer has kept it waiting too long. To be called once every `tick_s`."""
        limits = self._limits
        if self._stands_still() and self._stuck_ticks * limits.tick_s > limits.write_s:
            self._ended("answer_not_read")
            self.transport.abort()
            return
        # Between two requests uvicorn's own timer runs; also where the second has begun already.
        idle = self.timeout_keep_alive_task is not None and not self._head_begun
        ours = self.flow.read_paused or (self._head_due and self._is_answering())
        if idle or ours or self.transport.is_closing():
            return
        self._quiet_ticks += 1
        allowed_s = limits.head_s if self._head_due else limits.body_s
        if self._quiet_ticks * limits.tick_s > allowed_s:
            part = "head" if self._head_due else "body"
            self._refuse(RequestTimeout(f"The {part} of the request did not come within {allowed_s:g} s."))

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                if not self._upgrading:
                    return
                # Nothing here speaks another protocol, so the request is what it is without the field. The parser
                # cannot be told: it has skipped the body.
                self._upgrading = False
                data = self._head_without_upgrade() + data[upgrade.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _is_answering(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)  # None before the first request

    def _is_head_too_large(self) -> bool:
        return self._head_bytes > self._limits.head_bytes or len(self.headers or ()) > self._limits.fields

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _stands_still(self) -> bool:
        sent = self.transport.sent_bytes if self.transport.get_write_buffer_size() else None
        waits = sent is not None and sent == self._sent_bytes
        self._stuck_ticks = self._stuck_ticks + 1 if waits else 0
        self._sent_bytes = sent
        return waits

    def _refuse(self, error: EmbedqError) -> None:
        self._ended(error.code)
        if self._may_answer():
            self.transport.write(self._answer(error))
        self.transport.close()

    def _may_answer(self) -> bool:
        # While an earlier request is being answered, this would be taken for its answer.
        if not self._head_due:
            return not self.pipeline and not self.cycle.response_started
        return (self._head_begun or self._head_bytes > 0) and not self._is_answering()

    def _answer(self, error: EmbedqError) -> bytes:
        body = bytes(problem(error, instance="").body)
        fields = [
            *self.server_state.default_headers,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *security_headers(),
            (b"x-request-id", new_request_id()),
        ]
        status = b"HTTP/1.1 %d %b\r\n" % (error.status, HTTPStatus(error.status).phrase.encode())
        return status + b"".join(b"%b: %b\r\n" % field for field in fields) + b"\r\n" + body


def _malformed() -> InvalidHTTP:
    return InvalidHTTP("This is not a request of HTTP/1.1.")


def _head_too_large(limits: Limits) -> HeadTooLarge:
    return HeadTooLarge(
        f"The request's line and fields have more than {limits.head_bytes:,} bytes, or are more than {limits.fields}."
    )

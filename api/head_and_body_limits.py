"""uvicorn's protocol with limits. httptools bounds no head, loses a body beside `Upgrade`, and reads on unanswered."""

import asyncio
import logging
import re
from collections import deque

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.error_responses import refusal
from api.log_tally import Tally
from api.written_together import Together
from tasks.errors import EmbedqError, Invalid, Overloaded, Refused

_KIB_64, _FIELDS = 65_536, 128
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
(_log := logging.getLogger(f"{__name__}.uvicorn")).setLevel(logging.ERROR)  # it warns of each bad request
_ended = Tally(logging.getLogger(__name__), "connections were ended")


class DeadlineProtocol(HttpToolsProtocol):
    """One connection; its parser gets whole heads, and one request at a time.

    `limits_s`: for a head, from its first byte; for a body, from byte to byte until its answer.
    """

    limits_s = {"head": 10.0, "body": 30.0}  # noqa: RUF012 - nobody changes it
    _held, _in_body, _due = b"", False, ""
    _left, _beside = 0, 0  # bytes of a body: that are due, negative where it comes in chunks; that were no data
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Together(transport, self.loop))  # type: ignore[arg-type]
        self.logger = _log
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.connections.discard(self)  # uvicorn would refuse requests of the others instead
            self._refuse(Overloaded("Too many connections.", retry_after_s=5), "too many (EMBEDQ_MAX_CONNECTIONS)")
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def data_received(self, data: bytes) -> None:
        # Empty lines before a request are none (RFC 9112, 2.2).
        data, at = self._held + data if self._in_body else (self._held + data).lstrip(b"\r\n"), 0
        while at < len(data) and (size := self._next_size(data, at)) > 0 and not self.transport.is_closing():
            piece, at = data[at : at + size], at + size
            super().data_received(piece if self._in_body else _UPGRADE.sub(b"", piece))
            if self._beside > _KIB_64 and not self.transport.is_closing():
                self._refuse(Invalid("invalid_http", "The body has too much beside its data."))
        self._held = data[at:]
        self._watch()

    def on_headers_complete(self) -> None:
        fields, version = dict(self.headers), self.parser.get_http_version()
        hosts = [name for name, _ in self.headers].count(b"host")
        if version not in {"1.0", "1.1"} or hosts > 1 or hosts < (version == "1.1"):
            raise httptools.HttpParserError
        super().on_headers_complete()
        self.headers = deque(maxlen=0)  # type: ignore[assignment]  # of trailers, which are no fields of a request
        self._in_body, self._left, self._beside = True, int(fields.get(b"content-length", -1)), 0

    def on_body(self, body: bytes) -> None:
        self._left, self._beside = self._left - len(body), max(0, self._beside - 16 * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.data_received(b"")

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._in_body:
            self.flow.resume_reading()
        self.data_received(b"")

    def send_400_response(self, msg: str) -> None:
        self._refuse(Invalid("invalid_http", msg))

    def shutdown(self) -> None:
        self.app_state["send_home"]()  # those who wait would hold the server for a minute
        super().shutdown()

    def _next_size(self, data: bytes, at: int) -> int:
        if self._in_body and self._left > 0:
            return self._left
        end = data.find(b"\r\n\r\n", at)
        size = (len(data) if end < 0 else end) - at
        if self._in_body:  # in chunks, whose end is an empty line
            size += -3 if end < 0 else 4
            self._beside += size
        elif not getattr(self.cycle, "response_complete", True) or self.flow.write_paused:  # None before the first
            self.flow.pause_reading()
            return 0
        elif size > _KIB_64 or data.count(b"\n", at, at + size) > _FIELDS:
            self._refuse(Refused("head_too_large", "The head has more than 64 KiB or 128 fields."))
        else:
            return 0 if end < 0 else size + 4
        return size

    def _watch(self) -> None:
        answered = getattr(self.cycle, "response_complete", True)
        begun = answered and not self.flow.write_paused and (self.timeout_keep_alive_task is None or self._held)
        due = "" if self.transport.is_closing() else "body" if self._in_body else "head" if begun else ""
        if due == self._due and (due != "body" or answered):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, self.loop.call_later(self.limits_s[due], self._expire) if due else None

    def _expire(self) -> None:
        due, self._due = self._due, ""
        if due == "body" and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
            self._watch()  # the peer waits for us
        elif due == "head" and not self._held:
            self.transport.close()  # nothing has come
        else:
            self._refuse(Refused("request_timeout", "The request did not come in time."))

    def _refuse(self, error: EmbedqError, why: str = "") -> None:
        _ended.add(why or error.code)
        if not self._in_body or not self.cycle.response_started:
            answer = refusal(error)
            fields = b"".join(b"%b: %b\r\n" % field for field in answer.raw_headers)
            self.transport.write(STATUS_LINE[error.status] + fields + b"\r\n" + bytes(answer.body))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

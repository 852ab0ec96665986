"""uvicorn's protocol with time for a head and a body. httptools bounds no head, and loses a body beside `Upgrade`."""

import asyncio
import logging
import re

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.error_responses import refusal
from api.log_tally import Tally
from api.written_together import Together
from tasks.errors import EmbedqError, Invalid, Overloaded, Refused

_KIB_64, _FIELDS = 65_536, 128
_BEHIND = 64  # requests that came before the answer of the one in front; uvicorn would keep thousands
_UPGRADE = re.compile(rb"\r\nupgrade:[^\r\n]*", re.IGNORECASE)
(_log := logging.getLogger(f"{__name__}.uvicorn")).setLevel(logging.ERROR)  # it warns of each bad request
_ended = Tally(logging.getLogger(__name__), "connections were ended")


class DeadlineProtocol(HttpToolsProtocol):
    """One connection. `limits_s`: for a head, from its first byte; for a body, from byte to byte until its answer."""

    limits_s = {"head": 10.0, "body": 30.0}  # noqa: RUF012 - nobody changes it
    _held, _size = b"", 0  # of a head, which the parser gets whole; its bytes so far
    _parsed = ""  # what the parser is in: a body, or a head that came right behind another request
    _due = ""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Together(transport, self.loop))  # type: ignore[arg-type]
        self.logger = _log
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.connections.discard(self)  # uvicorn would refuse requests of the others instead
            self._refuse(Overloaded("Too many connections.", retry_after_s=5), "too many (EMBEDQ_MAX_CONNECTIONS)")
        self._watch("head")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch("")

    def data_received(self, data: bytes) -> None:
        begins = not self._parsed
        head, end, rest = (self._held + data).partition(b"\r\n\r\n") if begins else (data, b"", b"")
        self._size = len(head) if begins else self._size + len(data)
        if self._parsed != "body" and (self._size > _KIB_64 or head.count(b"\n") > _FIELDS):
            self._refuse(Refused("head_too_large", "The head has more than 64 KiB or 128 fields."))
        elif begins and not end:
            self._held = head
        else:
            self._held = b""
            super().data_received(_UPGRADE.sub(b"", head) + end + rest if begins else data)
        self._watch(self._parsed or ("head" if self._held else ""))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._parsed, self._size = "head", 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._parsed == "head":  # and not a trailer, which is no field of the request
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._parsed = "body"
        if len(self.pipeline) > _BEHIND:
            raise httptools.HttpParserError

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._parsed = ""

    def send_400_response(self, msg: str) -> None:
        self._refuse(Invalid("invalid_http", msg))

    def shutdown(self) -> None:
        self.app_state["send_home"]()  # those who wait would hold the server for a minute
        super().shutdown()

    def _watch(self, due: str) -> None:
        if due == self._due and (due != "body" or self.cycle.response_complete):
            return  # the time for all of it runs
        if self._timer is not None:
            self._timer.cancel()
        due = "" if self.transport.is_closing() else due
        self._due, self._timer = due, self.loop.call_later(self.limits_s[due], self._expire) if due else None

    def _expire(self) -> None:
        due, self._due = self._due, ""
        if due == "body" and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
            self._watch(due)  # the peer waits for us
        elif due == "head" and not self._held and not self._parsed:
            self.transport.close()  # nothing has come
        else:
            self._refuse(Refused("request_timeout", "The request did not come in time."))

    def _refuse(self, error: EmbedqError, why: str = "") -> None:
        _ended.add(why or error.code)
        if self._parsed != "body" or not self.cycle.response_started:
            answer = refusal(error)
            fields = b"".join(b"%b: %b\r\n" % field for field in answer.raw_headers)
            self.transport.write(STATUS_LINE[error.status] + fields + b"\r\n" + bytes(answer.body))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

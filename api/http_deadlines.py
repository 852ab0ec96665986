"""uvicorn's HTTP protocol with time limits. On h11: httptools loses a body beside `Upgrade`, and bounds no head."""

import asyncio
import logging

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.error_responses import refusal
from api.log_tally import Tally
from api.written_together import Together
from tasks.errors import EmbedqError, Invalid, Overloaded, Refused

_HEAD_BYTES, _FIELDS = 65_536, 128
(_log := logging.getLogger(f"{__name__}.uvicorn")).setLevel(logging.ERROR)  # it warns of each bad request
_ended = Tally(logging.getLogger(__name__), "connections were ended")


class DeadlineProtocol(H11Protocol):
    """One connection. `limits_s`: for a head, from its first byte; for a body, from byte to byte until its answer."""

    limits_s = {"head": 10.0, "body": 30.0}  # noqa: RUF012 - nobody changes it
    _due = ""
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

    def handle_events(self) -> None:
        head = self.conn.trailing_data[0].partition(b"\r\n\r\n")[0] if self.conn.their_state is h11.IDLE else b""
        if len(head) > _HEAD_BYTES or head.count(b"\n") > _FIELDS:  # h11 has no limit for what comes in one piece
            self._refuse(Refused("head_too_large", "The head has more than 64 KiB or 128 fields."))
        else:
            super().handle_events()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Invalid("invalid_http", msg))

    def shutdown(self) -> None:
        self.app_state["send_home"]()  # those who wait would hold the server for a minute
        super().shutdown()

    def _watch(self) -> None:
        theirs = h11.CLOSED if self.transport.is_closing() else self.conn.their_state
        begun = theirs is h11.IDLE and (self.timeout_keep_alive_task is None or self.conn.trailing_data[0])
        due = "head" if begun else "body" if theirs is h11.SEND_BODY else ""
        if due == self._due and (due != "body" or self.conn.our_state is h11.DONE):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = due, self.loop.call_later(self.limits_s[due], self._expire) if due else None

    def _expire(self) -> None:
        due, self._due = self._due, ""
        if due == "body" and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
            self._watch()  # the peer waits for us
        elif due == "head" and not self.conn.trailing_data[0]:
            self.transport.close()  # nothing has come
        else:
            self._refuse(Refused("request_timeout", "The request did not come in time."))

    def _refuse(self, error: EmbedqError, why: str = "") -> None:
        _ended.add(why or error.code)
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:  # no answer has begun
            answer = refusal(error)
            head = h11.Response(status_code=error.status, headers=answer.raw_headers)
            events = head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.close()

"""One HTTP/1.1 connection that asks and waits, with as little work per answer as Python allows."""

import asyncio
import re
from typing import cast

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_CHUNKED = re.compile(rb"(?i)\r\ntransfer-encoding: *chunked")
_CLOSES = re.compile(rb"(?i)\r\nconnection: *close")
_RETRY_AFTER = re.compile(rb"(?i)\r\nretry-after: *(\d+)")
_LAST_CHUNK = b"0\r\n\r\n"


class Broken(Exception):
    """The connection ended before the answer did, or the answer is not HTTP."""


class Connection(asyncio.Protocol):
    """Sends a request, gives the status once the whole answer has arrived, and keeps it until the next request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[int] | None = None
        self._received = bytearray()
        self._size: int | None = None
        self._chunked = False
        self._status = 0
        self.usable = True
        self.retry_after_s: int | None = None
        """Of the last answer."""

    def ask(self, request: bytes) -> "asyncio.Future[int]":
        """The status of the answer; raises `Broken`."""
        self._answer = asyncio.get_running_loop().create_future()
        self._received.clear()
        self._size = None
        if self._transport is None or not self.usable:
            self._answer.set_exception(Broken())
        else:
            self._transport.write(request)
        return self._answer

    @property
    def body(self) -> bytes:
        """Of the last answer, as it came."""
        return bytes(self._received[self._received.find(b"\r\n\r\n") + 4 :])

    def close(self) -> None:
        """Ends the connection."""
        self.usable = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.usable = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(str(exc or "closed")))

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self._received += data
        if self._size is None:
            self._size = self._read_head()
        if self._size is None:
            return
        whole = self._received.endswith(_LAST_CHUNK) if self._chunked else len(self._received) >= self._size
        if whole and self._answer is not None and not self._answer.done():
            self._answer.set_result(self._status)

    def _read_head(self) -> int | None:
        """Bytes of the whole answer, at least; None while the head is not complete."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._received[:end])
        self._status = int(head[9:12])
        self._chunked = _CHUNKED.search(head) is not None
        self.usable = not _CLOSES.search(head)
        told = _RETRY_AFTER.search(head)
        self.retry_after_s = int(told[1]) if told else None
        length = _LENGTH.search(head)
        return end + 4 + (int(length[1]) if length else 0)

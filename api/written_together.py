"""A transport that sends what is written in one turn of the event loop in one call of the system.

uvicorn writes the head and the body of an answer one after the other, and a call of the system costs a twelfth of what
a small request takes.
"""

import asyncio
from typing import Any

_FEW_BYTES = 16_384


class Together:
    """A transport around another one, which does everything that is not here."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        """What the other transport has."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends bytes at the end of this turn; many of them at once, or nobody would hear that the peer is slow."""
        if not self._written:
            self._loop.call_soon(self._flush)
        self._written.append(data)
        self._size += len(data)
        if self._size > _FEW_BYTES:
            self._flush()

    def close(self) -> None:
        """Closes the connection behind what is written."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        written, self._written, self._size = self._written, [], 0
        if written and not self._transport.is_closing():  # the peer may have left in this turn
            self._transport.writelines(written)

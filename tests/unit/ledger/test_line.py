"""A connection of the web tier to Redis: what it sends, and what it does when it was cut."""

import asyncio
import socket
import struct
from collections.abc import Coroutine
from typing import Any

import pytest
import redis
import redis.asyncio
import uvloop
from redis.connection import Connection

from tasks.ledger.line import Line, packed

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST instead of FIN."""


def test_a_command_is_packed_as_the_library_does() -> None:
    arguments = ("sha", 0, b"\x00\xff", "Größe", 1.5, -3, "")
    connection: Any = Connection
    (expected,) = connection().pack_command("EVALSHA", *arguments)
    assert packed("EVALSHA", arguments) == expected


async def _serve_resets(answers: list[bytes]) -> asyncio.Server:
    """Answers one command on each connection and resets it."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"PING" not in (sent := await reader.read(4096)):
            writer.write(b"+OK\r\n" * sent.count(b"SETINFO"))  # a new connection introduces itself
        writer.write(answers.pop(0))
        await writer.drain()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()

    return await asyncio.start_server(talk, "127.0.0.1", 0)


async def _two_calls() -> list[Any]:
    server = await _serve_resets([b"+one\r\n", b"+two\r\n"])
    port = server.sockets[0].getsockname()[1]
    pool = redis.asyncio.ConnectionPool(host="127.0.0.1", port=port, protocol=2, socket_connect_timeout=1)
    line = Line(pool)
    try:
        replies = await line.exchange([packed("PING", ())])
        writer = line._connection._writer  # nothing public shows that the reset has arrived
        assert writer is not None
        async with asyncio.timeout(10):
            while not writer.transport.is_closing():  # noqa: ASYNC110 - and nothing announces it
                await asyncio.sleep(0)
        return [*replies, *await line.exchange([packed("PING", ())])]
    finally:
        await line.close()
        server.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_line_that_was_reset_while_idle_is_opened_anew(run: Any) -> None:
    call: Coroutine[Any, Any, list[Any]] = _two_calls()
    assert run(call) == [b"one", b"two"]

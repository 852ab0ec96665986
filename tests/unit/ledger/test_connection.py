"""A connection to Redis that leads to the wrong place, or that was cut while nobody used it."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from tasks.errors import RedisUnavailable
from tasks.ledger.client import AsyncLedger
from tasks.ledger.scripts import Operation

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST instead of FIN."""
ECHO: Operation[Any] = Operation(lambda replies: replies[0], commands=(("ECHO", ""),))
READONLY = b"-READONLY You can't write against a read only replica."


@asynccontextmanager
async def server(answers: list[bytes], *, reset: bool) -> AsyncIterator[AsyncLedger]:
    """A client of a server that answers one packet on each connection, and resets it or leaves it open."""
    talks: list[asyncio.Task[None] | None] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        while b"ECHO" not in (sent := await reader.read(4096)) and sent:
            # A new connection introduces itself.
            writer.write(b"%1\r\n+proto\r\n:3\r\n" * sent.count(b"HELLO") + b"+OK\r\n" * sent.count(b"CLIENT"))
        writer.write(answers.pop(0) + b"\r\n")
        await writer.drain()
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        else:
            await reader.read()
            writer.close()

    listening = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    ledger = AsyncLedger.connect(f"redis://127.0.0.1:{port}/0")
    try:
        yield ledger
    finally:
        await ledger.close()
        await asyncio.gather(*filter(None, talks))
        listening.close()


async def _two_calls() -> list[Any]:
    async with server([b"+one", b"+two"], reset=True) as ledger:
        return [await ledger.run(ECHO), await ledger.run(ECHO)]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_connection_that_was_reset_while_idle_is_opened_anew(run: Any) -> None:
    calls: Coroutine[Any, Any, list[Any]] = _two_calls()
    assert run(calls) == [b"one", b"two"]


@pytest.mark.parametrize(
    "answer",
    [
        READONLY,
        b"-ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write against a replica.",
        b"-LOADING Redis is loading the dataset in memory",
        b"-MASTERDOWN Link with MASTER is down",
        b"-NOREPLICAS Not enough good replicas to write.",
        b"-MISCONF Errors writing to the AOF file",
    ],
)
async def test_a_redis_that_refuses_to_serve_is_looked_for_on_a_new_connection(answer: bytes) -> None:
    async with server([answer, b"+served"], reset=False) as ledger:
        assert await ledger.run(ECHO) == b"served"


async def test_what_refuses_twice_is_told_and_the_next_call_looks_again() -> None:
    async with server([READONLY, READONLY, b"+served"], reset=False) as ledger:
        with pytest.raises(RedisUnavailable, match="READONLY"):
            await ledger.run(ECHO)
        assert await ledger.run(ECHO) == b"served"

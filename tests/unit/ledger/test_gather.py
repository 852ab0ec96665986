"""A connection of the web tier to Redis: what it sends, and what it does when it was cut."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import redis.asyncio
import uvloop
from redis.connection import Connection

from tasks.ledger.connection import OutOfService, Refusals, watched_async
from tasks.ledger.gather import PipelinedConnection, merged, packed
from tasks.ledger.task import Lane

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST instead of FIN."""

PING = packed("PING")
READONLY = b"-READONLY You can't write against a read only replica."


def test_a_command_is_packed_as_the_library_does() -> None:
    arguments = ("sha", 0, b"\x00\xff", "Größe", 1.5, -3, "")
    connection: Any = Connection
    (expected,) = connection().pack_command("EVALSHA", *arguments)
    assert packed("EVALSHA", *arguments) == expected


def test_merged_commands_are_one_with_the_words_of_all() -> None:
    tails = [("a", 1), (), (b"\r\n*9\r\n", "Gr\u00f6\u00dfe")]
    expected = packed("EVALSHA", "sha", 0, *(word for tail in tails for word in tail))
    assert merged(packed("EVALSHA", "sha", 0), [packed(*tail) for tail in tails]) == expected


@asynccontextmanager
async def _line(answers: list[bytes], *, reset: bool) -> AsyncIterator[PipelinedConnection]:
    """A line to a server that answers one command on each connection, and resets it or leaves it open."""
    talks: list[asyncio.Task[None] | None] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        while b"PING" not in (sent := await reader.read(4096)):
            writer.write(b"+OK\r\n" * sent.count(b"SETINFO"))  # a new connection introduces itself
        writer.write(answers.pop(0) + b"\r\n")
        await writer.drain()
        if reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            writer.transport.abort()
        else:
            await reader.read()
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = redis.asyncio.ConnectionPool(host="127.0.0.1", port=port, protocol=2, socket_connect_timeout=1)
    pool.connection_class = watched_async(pool.connection_class, Refusals())
    line = PipelinedConnection(pool)
    try:
        yield line
    finally:
        await line.close()
        await asyncio.gather(*filter(None, talks))
        server.close()


async def _two_calls() -> list[Any]:
    async with _line([b"+one", b"+two"], reset=True) as line:
        replies = await line.exchange([PING])
        writer = line._connection._writer  # nothing public shows that the reset has arrived
        assert writer is not None
        async with asyncio.timeout(10):
            while not writer.transport.is_closing():  # noqa: ASYNC110 - and nothing announces it
                await asyncio.sleep(0)
        return [*replies, *await line.exchange([PING])]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_line_that_was_reset_while_idle_is_opened_anew(run: Any) -> None:
    call: Coroutine[Any, Any, list[Any]] = _two_calls()
    assert run(call) == [b"one", b"two"]


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
    async with _line([answer, b"+served"], reset=False) as line:
        assert await line.exchange([PING]) == [b"served"]


async def test_what_was_served_beside_a_refusal_is_not_repeated() -> None:
    async with _line([b"+one\r\n" + READONLY + b"\r\n+three", b"+two"], reset=False) as line:
        assert await line.exchange([PING] * 3) == [b"one", b"two", b"three"]


async def test_what_refuses_twice_is_told_and_the_next_call_looks_again() -> None:
    async with _line([READONLY, READONLY, b"+served"], reset=False) as line:
        (reply,) = await line.exchange([PING])
        assert isinstance(reply, OutOfService)
        assert await line.exchange([PING]) == [b"served"]


async def test_other_errors_keep_the_connection() -> None:
    async with _line([b"-OOM command not allowed"], reset=False) as line:
        (reply,) = await line.exchange([PING])
        assert isinstance(reply, redis.OutOfMemoryError)
        assert line._connection.is_connected


async def test_replies_that_came_together_stay_in_order() -> None:
    async with _line([b":1\r\n$-1\r\n*2\r\n+a\r\n:2\r\n-ERR no\r\n*0\r\n+last"], reset=False) as line:
        one, nothing, many, error, none, last = await line.exchange([PING] * 6)
        assert [one, nothing, many, none, last] == [1, None, [b"a", 2], [], b"last"]
        assert isinstance(error, redis.ResponseError)


def test_a_command_is_packed_alike_without_hiredis(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (("sha", 0, b"\x00\xff", "Größe", 1e-7, 2**40, -3, ""), ("sha", True), ("sha", Lane.BULK)):
        with monkeypatch.context() as here:
            here.setattr("tasks.ledger.gather.pack_command", None)
            expected = packed("EVALSHA", *arguments)
        assert packed("EVALSHA", *arguments) == expected

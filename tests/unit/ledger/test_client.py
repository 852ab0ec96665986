"""What the clients make of failures of Redis, cut connections, replicas, calls at once, refusals and figures.

What a real Redis does is in tests/integration/ledger, and how its errors are read in tests/unit/test_redis_connection.
"""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis
import uvloop
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tasks.errors import BacklogFull, NotReplicated, RedisUnavailable, StorageFull
from tasks.ledger.client import AsyncLedger, translate
from tasks.ledger.overview import TOOK_BOUNDS_S, overview, took_counts
from tasks.ledger.replicas import Replicas
from tasks.ledger.scripts import Operation
from tasks.ledger.submit import submit
from tasks.ledger.submit_batcher import MAX_BATCH, MAX_BATCH_BYTES, MAX_UNDER_WAY, SubmitBatcher
from tasks.ledger.task import Lane
from tests.ledger_builders import new_task
from tests.raises_code import raises_code

IN_SCRIPT = "Error running script (call to f_0): @user_script:226: @user_script: 226: "
FULL = "OOM command not allowed when used memory > 'maxmemory'."
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing sends RST instead of FIN."""
ECHO: Operation[Any] = Operation(lambda replies: replies[0], commands=(("ECHO", ""),))
REFUSED = b"-ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write against a replica."


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ReadOnlyError("You can't write against a read only replica."), RedisUnavailable),  # redis-py cuts the code off
        (ResponseError(IN_SCRIPT + "-MISCONF Errors writing to the AOF file: No space left"), RedisUnavailable),
        (OutOfMemoryError(FULL.removeprefix("OOM ")), StorageFull),
        (ResponseError(IN_SCRIPT + f"-{FULL}"), StorageFull),
        (ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), ResponseError),
        (ResponseError(IN_SCRIPT + "BUSYBODY LOADINGS"), ResponseError),
    ],
)
def test_failures_of_redis_have_words_and_a_defect_stays_what_it_is(error: Any, kind: type[Exception]) -> None:
    translated = translate(error)
    assert type(translated) is kind
    assert translated is error or getattr(translated, "retry_after_s", None)


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
    ledger = AsyncLedger.connect(f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}/0")
    try:
        yield ledger
    finally:
        await ledger.close()
        await asyncio.gather(*filter(None, talks))
        listening.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_connection_that_was_reset_while_idle_is_opened_anew(run: Any) -> None:
    async def two_calls() -> list[Any]:
        async with server([b"+one", b"+two"], reset=True) as ledger:
            return [await ledger.run(ECHO), await ledger.run(ECHO)]

    assert run(two_calls()) == [b"one", b"two"]


async def test_a_redis_that_refuses_to_serve_is_looked_for_on_a_new_connection_once_in_a_call() -> None:
    answers = [REFUSED, b"+served", b"-LOADING Redis is loading the dataset in memory", REFUSED, b"+again"]
    async with server(answers, reset=False) as ledger:
        assert await ledger.run(ECHO) == b"served"
        await ledger.client.connection_pool.disconnect()
        with pytest.raises(RedisUnavailable, match="READONLY"):
            await ledger.run(ECHO)
        assert await ledger.run(ECHO) == b"again"


def test_the_disk_of_a_replica_is_asked_for_first_and_its_memory_is_enough() -> None:
    unknown, cut_off = ResponseError("unknown command 'WAITAOF'"), redis.ConnectionError("UNBLOCKED")
    for answer, next_time in (([1, 1], 3), (unknown, 2), ([1, 0], 2)):
        replicas = Replicas()
        assert [command[0] for command in replicas.question()] == ["PUBLISH", "WAITAOF", "WAIT"]
        assert replicas.doubt([0, answer, 1]) is None
        assert len(replicas.question()) == next_time
        assert isinstance(replicas.doubt([0, answer, 0]), NotReplicated)
        assert replicas.doubt([0, answer, cut_off]) is replicas.doubt([cut_off, answer, 1]) is cut_off


def call(name: str, *, head: int = 0, size: int = 0, promised: bool = False) -> Operation[Any]:
    return Operation(list, "submit", "m", (head,), gathers=(name, b"x" * size), promised=promised)


async def test_calls_that_come_meanwhile_are_one_command_if_they_are_alike_and_not_too_large() -> None:
    sent: list[Operation[Any]] = []
    may_answer = asyncio.Event()

    async def redis_answers(operation: Operation[Any]) -> list[Any]:
        sent.append(operation)
        await may_answer.wait()
        if operation.arguments == (13,):
            raise ValueError
        names = operation.gathers[::2]
        return [*([b"full" if str(name).startswith("full") else b"ok", name] for name in names), b"m"]

    batcher = SubmitBatcher(redis_answers)

    async def start(*calls: Operation[Any]) -> "list[asyncio.Task[list[Any]]]":
        waiting = [asyncio.create_task(batcher.reply(one)) for one in calls]
        for _ in range(4):  # what can be sent is sent
            await asyncio.sleep(0)
        return waiting

    for n in range(MAX_UNDER_WAY):
        await start(call(f"busy{n}"))
    gone, *told = await start(*(call(name) for name in ("gone", "full", "a", "b")))
    failing = await start(call("c", head=13), call("d", head=13))
    await start(
        *(call(f"many{n}", head=1) for n in range(MAX_BATCH + 1)),
        *(call(f"large{n}", head=2, size=MAX_BATCH_BYTES * 2 // 3) for n in range(2)),
        *(call("promised", promised=True), call("last")),
    )
    gone.cancel()
    await asyncio.sleep(0)
    may_answer.set()
    # What is told to all falls to the first that was taken and is still there.
    assert await asyncio.gather(*told) == [[[b"full", "full"]], [[b"ok", "a"], b"m"], [[b"ok", "b"]]]
    assert [type(error) for error in await asyncio.gather(*failing, return_exceptions=True)] == [ValueError] * 2
    assert await batcher.reply(call("next")) == [[b"ok", "next"], b"m"], "the next calls go on"
    batches = [operation.gathers[::2] for operation in sent]
    assert batches[MAX_UNDER_WAY : MAX_UNDER_WAY + 2] == [("full", "a", "b", "last"), ("c", "d")]
    assert sorted(map(len, batches[MAX_UNDER_WAY + 2 :])) == [1, 1, 1, 1, 1, MAX_BATCH]
    assert [operation.gathers[0] for operation in sent if operation.promised] == ["promised"]
    await batcher.close()


def read_submit(*reply: Any) -> object:
    return submit(new_task()).read([list(reply)])


def test_a_refusal_says_when_to_come_again_and_not_the_same_to_all() -> None:
    for seconds, earliest, latest in (
        *((b"0.001", 1, 1), (b"-5", 1, 1), (b"1.2", 2, 2)),
        *((b"40", 40, 50), (b"119.5", 96, 120), (b"1e9", 96, 120)),
    ):
        with pytest.raises(BacklogFull, match=r"31 s.*Nothing was stored") as refused:
            read_submit(b"full", seconds, b"31.4")
        assert earliest <= (refused.value.retry_after_s or 0) <= latest
    told = set()
    for _ in range(100):
        with raises_code("storage_full") as full:
            read_submit(b"memory", b"40")
        told.add(full.value.retry_after_s)
    assert len(told) > 1
    for code, reply in (
        ("storage_full", (b"share", b"5")),
        ("idempotency_key_reused", (b"conflict",)),
        ("invalid_api_key", (b"revoked",)),
        ("rate_limited", (b"key", b"tokens_per_minute", 100, 40, b"7.5")),
        ("key_limit", (b"key", b"queued_tokens", 100, 400, b"-1")),
    ):
        with raises_code(code) as refusal:
            read_submit(*reply)
        assert (code == "rate_limited") == (8 <= (refusal.value.retry_after_s or 0) <= 10)


def test_a_task_is_counted_by_the_time_from_its_acceptance_to_its_end() -> None:
    for ms, bound_s in ((0, 0.004), (4, 0.004), (5, 0.008), (1024, 1.024), (1025, 2.048), (2**29, None)):
        told = took_counts([(Lane.BULK, ms), (Lane.BULK, ms)])
        counts = [text for name, n in told.items() for text in (name.encode(), b"%d" % n)]
        seen = overview("m").read([[0] * 4, [b"m", b"", b"", counts, 0, [-1, -1], [], [], 0]])
        found, sum_s = seen["m"].took(Lane.BULK)
        counted = dict(zip((*TOOK_BOUNDS_S, None), found, strict=True))
        assert {bound: count for bound, count in counted.items() if count} == {bound_s: 2}
        assert sum_s == 2 * ms / 1000

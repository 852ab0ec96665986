"""Which calls travel together, and who is told what. `tests/integration/ledger/test_batching.py` has a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tasks.ledger.scripts import Operation
from tasks.ledger.submit_batcher import MAX_BATCH, MAX_BATCH_BYTES, MAX_UNDER_WAY, SubmitBatcher


def call(name: str, *, head: int = 0, size: int = 0, promised: bool = False) -> Operation[Any]:
    return Operation(list, "submit", "m", (head,), gathers=(name, b"x" * size), promised=promised)


class Redis:
    """Answers each call with its name when it is let, and rings for all."""

    def __init__(self) -> None:
        self.sent: list[Operation[Any]] = []
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, operation: Operation[Any]) -> list[Any]:
        self.sent.append(operation)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        names = operation.gathers[::2]
        return [*([b"full" if str(name).startswith("full") else b"ok", name] for name in names), b"m"]

    @property
    def batches(self) -> list[tuple[Any, ...]]:
        return [operation.gathers[::2] for operation in self.sent]


@pytest.fixture
async def redis() -> Redis:
    return Redis()


@pytest.fixture
async def batcher(redis: Redis) -> AsyncIterator[SubmitBatcher]:
    made = SubmitBatcher(redis)
    yield made
    await made.close()


async def start(batcher: SubmitBatcher, *calls: Operation[Any]) -> "list[asyncio.Task[list[Any]]]":
    """Each waits for its reply, and what can be sent is sent."""
    waiting = [asyncio.create_task(batcher.reply(one)) for one in calls]
    for _ in range(4):
        await asyncio.sleep(0)
    return waiting


async def busy(batcher: SubmitBatcher) -> "list[asyncio.Task[list[Any]]]":
    """All lines wait for an answer."""
    return [task for n in range(MAX_UNDER_WAY) for task in await start(batcher, call(f"busy{n}"))]


async def test_calls_that_come_meanwhile_are_one_command(redis: Redis, batcher: SubmitBatcher) -> None:
    waiting = [*await busy(batcher), *await start(batcher, call("a"), call("b"), call("c"))]
    redis.may_answer.set()
    replies = await asyncio.gather(*waiting)
    assert redis.batches[2:] == [("a", "b", "c")]
    assert [reply[0][1] for reply in replies] == ["busy0", "busy1", "a", "b", "c"]


async def test_calls_with_other_arguments_or_promises_go_apart(redis: Redis, batcher: SubmitBatcher) -> None:
    calls = (call("a"), call("b", head=1), call("c"), call("d", promised=True), call("e", head=1))
    waiting = [*await busy(batcher), *await start(batcher, *calls)]
    redis.may_answer.set()
    await asyncio.gather(*waiting)
    assert redis.batches[2:] == [("a", "c"), ("b", "e"), ("d",)]
    assert [operation.promised for operation in redis.sent[2:]] == [False, False, True]


async def test_a_batch_has_a_bound_in_calls_and_in_bytes(redis: Redis, batcher: SubmitBatcher) -> None:
    many = [call(str(n)) for n in range(MAX_BATCH + 1)]
    large = [call(f"large{n}", head=1, size=MAX_BATCH_BYTES * 2 // 3) for n in range(2)]
    waiting = [*await busy(batcher), *await start(batcher, *many, *large)]
    redis.may_answer.set()
    await asyncio.gather(*waiting)
    assert sorted(len(batch) for batch in redis.batches[2:]) == [1, 1, 1, MAX_BATCH]


async def test_what_is_told_to_all_falls_to_the_first_that_was_taken(redis: Redis, batcher: SubmitBatcher) -> None:
    waiting = [*await busy(batcher), *await start(batcher, call("gone"), call("full"), call("a"), call("b"))]
    waiting.pop(MAX_UNDER_WAY).cancel()
    await asyncio.sleep(0)
    redis.may_answer.set()
    _, _, full, a, b = await asyncio.gather(*waiting)
    assert redis.batches[2:] == [("full", "a", "b")]
    assert (full, a, b) == ([[b"full", "full"]], [[b"ok", "a"], b"m"], [[b"ok", "b"]])


async def test_an_error_is_everybodys_and_the_next_calls_go_on(redis: Redis, batcher: SubmitBatcher) -> None:
    waiting = [*await busy(batcher), *await start(batcher, call("a"), call("b"))]
    redis.error = ValueError("no")
    redis.may_answer.set()
    assert {type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)} == {ValueError}
    redis.error = None
    assert await batcher.reply(call("c")) == [[b"ok", "c"], b"m"]

"""Calls that come while others are under way travel in the next one: one command, one fsync for many callers.

A call on an idle line leaves at once, so gathering adds no wait. The script reads and writes once what the calls of one
command have in common, and replies to each.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

from tasks.ledger.scripts import Operation

MAX_UNDER_WAY = 2
"""Commands at the same time: while one is answered the next is filled."""
MAX_BATCH = 64
"""Calls of one command: more would let Redis work for others' calls before it answers the first."""
MAX_BATCH_BYTES = 2**16
"""Of one command, during which Redis works for nobody else. 64 queries take 2 ms; 64 tasks of this size took 0.5 s."""

_TAKEN = {b"ok", b"joined"}


class _Call(NamedTuple):
    operation: Operation[Any]
    size: int
    answer: "asyncio.Future[list[Any]]"


class SubmitBatcher:
    """Sends operations that gather (`Operation.gathers`).

    Args:
        send: performs one operation; its reply as it comes from Redis.
    """

    def __init__(self, send: Callable[[Operation[Any]], Awaitable[list[Any]]]) -> None:
        self._send = send
        self._waiting: dict[Hashable, list[_Call]] = {}
        """By what calls have in common; whose turn is next comes first."""
        self._senders: set[asyncio.Task[None]] = set()
        self._idle = MAX_UNDER_WAY

    async def reply(self, operation: Operation[Any]) -> list[Any]:
        """The entry of this call, and behind it what is told to all if it falls to this one.

        Raises:
            Exception: whatever the command of its batch met, which is everybody's.
        """
        size = sum(len(one) for one in operation.gathers if type(one) is bytes)  # the rest is small
        call = _Call(operation, size, asyncio.get_running_loop().create_future())
        common = (operation.script, operation.queue, operation.arguments, operation.promised)
        self._waiting.setdefault(common, []).append(call)
        if self._idle:
            self._idle -= 1
            sender = asyncio.create_task(self._work())
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await call.answer

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                if batch:
                    await self._exchange(batch)
        finally:
            # Not in a callback of the task: callers run before that, and would find nobody who sends for them.
            self._idle += 1

    def _next_batch(self) -> list[_Call]:
        common, calls = next(iter(self._waiting.items()))
        del self._waiting[common]
        size = 0
        for n, call in enumerate(calls):
            size += call.size
            if n == MAX_BATCH or (n and size > MAX_BATCH_BYTES):
                self._waiting[common] = calls[n:]
                calls = calls[:n]
                break
        return [call for call in calls if not call.answer.done()]  # a caller may have given up meanwhile

    async def _exchange(self, batch: list[_Call]) -> None:
        gathers = tuple(argument for call in batch for argument in call.operation.gathers)
        entries: list[Any]
        try:
            replies = await self._send(replace(batch[0].operation, gathers=gathers))
            entries, for_all = replies[: len(batch)], replies[len(batch) :]
        except Exception as error:  # noqa: BLE001 - those who wait would never be answered
            entries, for_all = [error] * len(batch), []
        for call, entry in zip(batch, entries, strict=True):
            if call.answer.done():
                continue  # the caller has given up
            if isinstance(entry, Exception):
                call.answer.set_exception(entry)
            elif entry[0] in _TAKEN:
                call.answer.set_result([entry, *for_all])
                for_all = []  # told once, to one who is there and was not refused
            else:
                call.answer.set_result([entry])

    async def close(self) -> None:
        """Ends what is under way."""
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

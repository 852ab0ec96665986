"""Calls that are made while others are under way travel together: one round trip, one fsync, one task switch for many.

A call on an idle line leaves at once, so gathering adds no wait; under load a call costs a small part of what it costs
alone, because most of that is work per round trip and not per command.
"""

import asyncio
from collections import deque
from typing import Any

import redis.asyncio

from tasks.ledger.line import Line, packed

MAX_BATCH = 64
"""Calls per round trip: more would let Redis work for others' calls before answering the first."""
MAX_UNDER_WAY = 2
"""Round trips at the same time: while one is answered the next is filled."""

_Call = tuple[bytes, "asyncio.Future[Any]"]


class Gatherer:
    """Sends EVALSHA calls over lines of its own, with the parameters of a client's connections."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._waiting: deque[_Call] = deque()
        self._lines = tuple(Line(client.connection_pool) for _ in range(MAX_UNDER_WAY))
        self._idle = list(self._lines)
        self._senders: set[asyncio.Task[None]] = set()

    async def evalsha(self, *arguments: Any) -> Any:
        """The reply of one EVALSHA with these arguments.

        Raises:
            redis.RedisError: its own error, or the one that its whole batch met.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((packed("EVALSHA", arguments), answer))
        if self._idle:
            sender = asyncio.create_task(self._send(self._idle.pop()))  # the line that was used last is connected
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answer

    async def _send(self, line: Line) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
                wanted = [call for call in batch if not call[1].done()]  # a caller may have given up meanwhile
                if wanted:
                    await _round_trip(line, wanted)
        finally:
            # Not in a callback of the task: callers run before that, and would find nobody who sends for them.
            self._idle.append(line)

    async def close(self) -> None:
        """Ends what is under way."""
        senders = list(self._senders)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for line in self._lines:
            await line.close()


async def _round_trip(line: Line, batch: list[_Call]) -> None:
    try:
        replies = await line.exchange([command for command, _ in batch])
    except Exception as error:  # noqa: BLE001 - those who wait would never be answered
        replies = [error] * len(batch)
    for (_, answer), reply in zip(batch, replies, strict=True):
        if answer.done():
            continue
        if isinstance(reply, Exception):
            answer.set_exception(reply)
        else:
            answer.set_result(reply)

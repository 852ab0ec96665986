"""Calls that are made while others are under way travel together: one round trip, one fsync, one task switch for many.

A call on an idle line leaves at once, so gathering adds no wait; under load a call costs a small part of what it costs
alone, because most of that is work per round trip and not per command. Measured: a lone call takes 90 µs of processor
time instead of 190 µs with redis-py's pool, pipeline and per-read time limits; each of 64 at once 41 instead of 56 µs.
(These figures are older than what follows.) Calls of one script that allows it are merged to one command: the script
reads and writes once what they have in common.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

import redis.asyncio
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tasks.ledger.connection import OutOfService
from tasks.ledger.replicas import Replicas

pack_command: Callable[[Sequence[object]], bytes] | None
"""hiredis's, in half the time of ours; only the web tier, which makes these calls by the thousand, must have it."""
try:
    pack_command = import_module("hiredis").pack_command
except ImportError:
    pack_command = None

ROUND_TRIP_S = 1.0


def packed(*words: object) -> bytes:
    """A command as Redis reads it. Bytes go as they are, everything else as its `str`."""
    if pack_command is not None:
        try:
            return pack_command(words)
        except TypeError:  # it knows text, bytes and numbers, and no truth values
            return _packed_here(words)
    return _packed_here(words)


def _packed_here(words: Sequence[object]) -> bytes:
    pieces = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if type(word) is bytes else str(word).encode()
        pieces += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(pieces)


def merged(head: bytes, tails: Sequence[bytes]) -> bytes:
    """One command of several packed ones: the words of the first, and behind them those of the others."""
    words, text = 0, []
    for piece in (head, *tails):
        count, _, rest = piece.partition(b"\r\n")
        words += int(count[1:])
        text.append(rest)
    return b"*%d\r\n%b" % (words, b"".join(text))


_PLAIN = frozenset({bytes, int, type(None)})


class _Reader:
    """hiredis's reader for redis-py's parser. It also gives whatever has come at once, with nothing awaited between.

    redis-py awaits five coroutines for each reply. But what is more than data concerns the connection, and is left for
    it: an error, a push, and that no whole reply is there.
    """

    def __init__(self, reader: Any) -> None:
        self._next = reader.gets
        self._left: list[Any] = []
        self.feed = reader.feed
        self.has_data = reader.has_data

    def at_hand(self, most: int) -> list[Any]:
        """Replies that have come, in order, until one is for `gets`."""
        found: list[Any] = []
        while len(found) < most and not self._left:
            reply = self._next()
            if type(reply) in _PLAIN or (type(reply) is list and not (reply and isinstance(reply[0], Exception))):
                found.append(reply)
            else:
                self._left.append(reply)
        return found

    def gets(self, *decode: bool) -> Any:
        """As of hiredis."""
        return self._left.pop() if self._left else self._next(*decode)


class _Parser(DefaultParser):  # type: ignore[misc,valid-type]  # which one it is depends on what is installed
    """redis-py's, over such a reader; without hiredis it is the same as ever."""

    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)
        reader: Any = getattr(self, "_reader", None)
        if hasattr(reader, "gets"):
            self._reader = _Reader(reader)


class PipelinedConnection:
    """A connection of the class and with the parameters of a pool. Opened by its first use; one user at a time."""

    def __init__(self, pool: ConnectionPool, round_trip_s: float = ROUND_TRIP_S) -> None:
        self._round_trip_s = round_trip_s
        # No limit per read: on Python 3.11 each would cost a task, and the round trip has one.
        settings = {**pool.connection_kwargs, "socket_timeout": None, "parser_class": _Parser}
        self._connection = pool.connection_class(**settings)

    async def exchange(self, commands: Sequence[bytes], *, whole: bool = False) -> list[Any]:
        """The replies in order, errors of Redis among them. Repeated once on a new connection, if this one is no good.

        All are when it broke, else those alone that Redis refused to serve; all the same where one speaks for the
        others (`whole`). A restart of Redis leaves a dead connection behind, which is noticed only when it is used; a
        failover one that leads to a Redis which refuses. Nothing is repeated after a time limit, so nothing takes
        longer than that.

        Raises:
            redis.RedisError: no connection, or no answer within `round_trip_s`.
        """
        try:
            async with asyncio.timeout(self._round_trip_s):
                try:
                    replies = await self._once(commands)
                except RedisConnectionError:
                    return await self._once(commands)
                refused = [i for i, reply in enumerate(replies) if isinstance(reply, OutOfService)]
                if refused and whole:
                    return await self._once(commands)
                if refused:
                    for i, reply in zip(refused, await self._once([commands[i] for i in refused]), strict=True):
                        replies[i] = reply
                return replies
        except TimeoutError:
            raise RedisTimeoutError("no answer in time") from None

    async def _once(self, commands: Sequence[bytes]) -> list[Any]:
        try:
            if self._lost():
                await self.close()
            await self._connection.send_packed_command(commands, check_health=False)
            replies: list[Any] = []
            while len(replies) < len(commands):
                if self._reader is not None:
                    replies += self._reader.at_hand(len(commands) - len(replies))
                if len(replies) < len(commands):
                    replies.append(await self._reply())
        except RuntimeError as error:
            await self.close()
            raise RedisConnectionError("the connection was closed") from error  # as uvloop says it after a reset
        except BaseException:
            await self.close()  # replies that nobody read would be taken for those of the next call
            raise
        if any(isinstance(reply, OutOfService) for reply in replies):
            await self.close()
        return replies

    def _lost(self) -> bool:
        # asyncio's transport of Python 3.12 and 3.13.0 takes what is written after a reset and sends it nowhere.
        writer = self._connection._writer  # noqa: SLF001 - redis-py has no name for it
        return writer is not None and writer.transport.is_closing()

    @property
    def _reader(self) -> _Reader | None:
        # redis-py exchanges its parser where hiredis is missing.
        reader = getattr(self._connection._parser, "_reader", None)  # noqa: SLF001 - no name for it either
        return reader if isinstance(reader, _Reader) else None

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except (ResponseError, OutOfService) as error:
            return error

    async def close(self) -> None:
        """Drops the connection; the next use opens another."""
        await self._connection.disconnect(nowait=True)


MAX_BATCH = 64
"""Calls per round trip: more would let Redis work for others' calls before answering the first."""
MAX_MERGED_BYTES = 2**16
"""Of one command, during which Redis works for nobody else. 64 queries take 2 ms; 64 tasks of this size took 0.5 s."""
MAX_UNDER_WAY = 2
"""Round trips at the same time: while one is answered the next is filled."""


class _Call(NamedTuple):
    """What is to be sent, and who waits for the reply.

    Attributes:
        words: packed; behind those of `head`.
        head: packed; b"": the words are a command of their own.
    """

    words: bytes
    head: bytes
    answer: "asyncio.Future[Any]"


_pack_head = lru_cache(maxsize=64)(packed)


class Gatherer:
    """Sends calls over lines of its own, with the parameters of a client's connections.

    `call_s`: that a call may take, its wait for a line included. One timer serves all: `asyncio.timeout` for each call
    cost a tenth of it. `replicas`: who must have what the calls of a round trip wrote, before one of them is answered.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        round_trip_s: float,
        call_s: float,
        max_under_way: int = MAX_UNDER_WAY,
        replicas: Replicas | None = None,
    ) -> None:
        self._call_s = call_s
        self._due: deque[tuple[float, asyncio.Future[Any]]] = deque()
        """When each call ends at the latest, in the order in which they came."""
        self._timer: asyncio.TimerHandle | None = None
        self._replicas = replicas
        self._waiting: deque[_Call] = deque()
        self._lines = tuple(PipelinedConnection(client.connection_pool, round_trip_s) for _ in range(max_under_way))
        self._idle = list(self._lines)
        self._senders: set[asyncio.Task[None]] = set()

    async def call(self, command: str, *arguments: Any) -> Any:
        """The reply of one command with these arguments.

        Raises:
            redis.RedisError: its own error, or the one that its whole batch met.
        """
        return await self._wait(packed(command, *arguments), b"")

    async def merge(self, head: tuple[Any, ...], own: Sequence[Any]) -> Any:
        """The same for the command of a head and arguments of one's own, whose reply is a list of one.

        Several such calls with one head are one command: behind its head are the arguments of all of them, and its
        reply has as many entries. Its error is everybody's.
        """
        return await self._wait(packed(*own), _pack_head(*head))

    async def _wait(self, words: bytes, head: bytes) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        while self._due and self._due[0][1].done():
            self._due.popleft()  # it holds what was answered
        self._due.append((loop.time() + self._call_s, answer))
        if self._timer is None:
            self._timer = loop.call_later(self._call_s, self._end_late)
        self._waiting.append(_Call(words, head, answer))
        if self._idle:
            sender = asyncio.create_task(self._send(self._idle.pop()))  # the line that was used last is connected
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)
        return await answer

    def _end_late(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._due:
            due_s, answer = self._due[0]
            if not answer.done():
                if due_s > loop.time():
                    self._timer = loop.call_at(due_s, self._end_late)
                    return
                answer.set_exception(RedisTimeoutError("no answer in time"))
            self._due.popleft()

    async def _send(self, line: PipelinedConnection) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_BATCH))]
                wanted = [call for call in batch if not call.answer.done()]  # a caller may have given up meanwhile
                if wanted:
                    await self._round_trip(line, wanted)
        finally:
            # Not in a callback of the task: callers run before that, and would find nobody who sends for them.
            self._idle.append(line)

    async def _round_trip(self, line: PipelinedConnection, batch: list[_Call]) -> None:
        groups = _groups(batch)
        commands = [
            merged(calls[0].head, [call.words for call in calls]) if calls[0].head else calls[0].words
            for calls in groups
        ]
        question = [packed(*words) for words in self._replicas.question()] if self._replicas else []
        try:
            replies = await line.exchange([*commands, *question], whole=bool(question))
            if self._replicas:
                doubt = self._replicas.doubt(replies[len(groups) :])
                if doubt:
                    await line.close()  # this master may have been cut off; the next connection asks the Sentinels
                replies = [
                    reply if isinstance(reply, Exception) else doubt or reply for reply in replies[: len(groups)]
                ]
            told = [_parts(calls, reply) for calls, reply in zip(groups, replies, strict=True)]
        except Exception as error:  # noqa: BLE001 - those who wait would never be answered
            told = [[error] * len(calls) for calls in groups]
        for calls, parts in zip(groups, told, strict=True):
            for call, part in zip(calls, parts, strict=True):
                _tell(call.answer, part)

    async def close(self) -> None:
        """Ends what is under way."""
        if self._timer is not None:
            self._timer.cancel()
        senders = list(self._senders)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        for _, answer in self._due:
            if not answer.done():  # nobody sends it any more, and no timer ends it
                answer.set_exception(RedisConnectionError("the connection was closed"))
        self._due.clear()
        for line in self._lines:
            await line.close()


def _groups(batch: Sequence[_Call]) -> list[list[_Call]]:
    """Calls that are one command each, in the order of their first ones."""
    groups: list[list[_Call]] = []
    open_groups: dict[bytes, tuple[list[_Call], int]] = {}
    for call in batch:
        group, size = open_groups.get(call.head, ([], 0))
        if not call.head or not group or size + len(call.words) > MAX_MERGED_BYTES:
            group, size = [], 0
            groups.append(group)
        group.append(call)
        if call.head:
            open_groups[call.head] = group, size + len(call.words)
    return groups


def _parts(calls: Sequence[_Call], reply: Any) -> list[Any]:
    """The reply of each call of a command.

    Raises:
        ValueError: it has another number of entries.
    """
    if not calls[0].head or isinstance(reply, Exception):
        return [reply] * len(calls)
    if not isinstance(reply, list) or len(reply) != len(calls):
        raise ValueError(f"a reply to {len(calls)} merged calls is none")
    return reply


def _tell(answer: "asyncio.Future[Any]", reply: Any) -> None:
    if answer.done():
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)

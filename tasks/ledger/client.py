"""Runs operations: `Ledger` in workers, `AsyncLedger` in the web tier."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from tasks.errors import EmbedqError, NotReplicated, Overloaded, RedisUnavailable, StorageFull, Unavailable, WrongRedis
from tasks.ledger.connection import Master, watched, watched_async
from tasks.ledger.redis_checks import RedisFacts, facts_from, questions
from tasks.ledger.redis_keys import ENDED_CHANNEL, ROOT
from tasks.ledger.replicas import Replicas
from tasks.ledger.scripts import Command, Operation, sha, source
from tasks.ledger.submit_batcher import SubmitBatcher
from worker_config.redis_connection import FOR_GOOD, RedisAck, Sentinels, explain, refusal

T = TypeVar("T")

_LATE_S = 0.25
"""Of an event loop: a call that failed in time then says nothing about Redis. With some thousand requests in flight the
loop was later than its own time limits, and every answer was `redis_unavailable` although Redis was well."""

CALL_TIMEOUT_S = 1.2
"""For one call of the web tier in all, unless it moves megabytes: its wait for a connection, opening it, and the
reply."""

_ROUND_TRIP_S = 1.0
"""For a call that others have joined: it ends before theirs do."""


def translate(error: RedisError) -> EmbedqError | RedisError:
    """Redis's own failures in the words of this project; a script's defect stays what it is."""
    code = refusal(error)
    if code == "OOM":
        # When there is room again cannot be said here; it is a matter of results that expire, not of seconds.
        return StorageFull.of_queue(retry_after_s=60)
    if isinstance(error, ResponseError) and code is None:
        return error
    kind = WrongRedis if code in FOR_GOOD else RedisUnavailable
    return kind(f"{explain(error) or 'Redis does not answer'}.", retry_after_s=spread(3))


def reason(error: BaseException) -> str:
    """For a log: what is unavailable and why. Of others the type alone, whose text may hold what somebody submitted."""
    return error.detail if isinstance(error, Unavailable) else explain(error) or type(error).__name__


def spread(most_s: int) -> int:
    """A whole number of seconds, 1 to `most_s`: those who are refused together do not come back together."""
    return random.randint(1, most_s)  # noqa: S311 - no secret


class _Calls:
    """What both clients have in common: what is sent for an operation, and what its replies say.

    Attributes:
        master: where its connections lead to.
        clock_offset_ms: added to the server's clock; 0 outside tests.
        frozen_ms: the time at which scripts run instead of the server's; None outside tests.
    """

    clock_offset_ms = 0
    frozen_ms: int | None = None

    def __init__(self, master: Master | None, ack: RedisAck) -> None:
        self.master = master or Master()
        self._replicas = Replicas() if ack == "replica" else None

    def _commands(self, operation: Operation[Any], *, whole: bool = False) -> Sequence[Command]:
        """`whole`: with the text of the script, which Redis does not know yet."""
        commands, name = operation.commands, operation.script
        if name:
            clock = self.clock_offset_ms if self.frozen_ms is None else f"@{self.frozen_ms}"
            head = ("EVAL", source(name)) if whole else ("EVALSHA", sha(name))
            commands = ((*head, 0, ROOT, clock, operation.queue, *operation.arguments, *operation.gathers),)
        return (*commands, *self._replicas.question()) if self._replicas and operation.promised else commands

    def _reply(self, operation: Operation[Any], replies: list[Any]) -> Any:
        """What the operation reads. Raises the first error among its replies, or what replicas have not confirmed."""
        count = 1 if operation.script else len(operation.commands)
        for reply in replies[:count]:
            if isinstance(reply, Exception):
                raise reply
        if self._replicas and operation.promised and (doubt := self._replicas.doubt(replies[count:])):
            raise doubt
        return replies[0] if operation.script else replies


class Ledger(_Calls):
    """Synchronous client.

    Args:
        client: a connection to the Redis instance, with `decode_responses` off.
        master: where it leads to.
        ack: whose confirmation a promise waits for.
    """

    def __init__(self, client: redis.Redis, master: Master | None = None, ack: RedisAck = "local") -> None:
        super().__init__(master, ack)
        self.client = client

    @classmethod
    def connect(cls, url: str, ack: RedisAck = "local", sentinels: Sentinels | None = None) -> "Ledger":
        """A client that repeats calls whose connection broke, for a few seconds at most: every script is idempotent.

        `socket_timeout` is above every blocking read, so that a half-open connection is noticed.
        """
        master = Master(sentinels)
        client = redis.Redis.from_url(
            url,
            socket_timeout=5,
            socket_connect_timeout=2,
            health_check_interval=5,
            retry=Retry(ExponentialBackoff(cap=1, base=0.05), 3),
            **_keepalive(url),
        )
        pool = client.connection_pool
        pool.connection_class = watched(pool.connection_class, master)
        return cls(client, master, ack)

    def run(self, operation: Operation[T]) -> T:
        """The operation's value.

        Raises:
            RedisUnavailable: no answer.
            NotReplicated: no replica confirmed what was promised.
            StorageFull: refused for lack of memory.
            EmbedqError: whatever the operation's docstring names.
        """
        try:
            try:
                reply = self._reply(operation, self._sent(self._commands(operation)))
            except NoScriptError:
                reply = self._reply(operation, self._sent(self._commands(operation, whole=True)))
        except RedisError as error:
            raise translate(error) from error
        return operation.read(reply)

    def _sent(self, commands: Sequence[Command]) -> list[Any]:
        """The replies, errors among them if there are several."""
        if len(commands) == 1:
            return [self.client.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            return pipeline.execute(raise_on_error=False)

    def try_out(self, bells: str) -> RedisFacts:
        """What Redis says of itself, once all that a worker needs was tried. `bells`: the Celery queue that it hears.

        Raises:
            RedisUnavailable: no answer, or its user lacks a right.
        """
        try:
            with self.client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                pubsub.subscribe(ENDED_CHANNEL)
                pubsub.get_message(timeout=5)
            return facts_from(self._sent(questions(bells)))
        except RedisError as error:
            raise translate(error) from error

    def find_master(self) -> None:
        """Asks the Sentinels, if there are any. What leads to a former master is given up at its next use.

        A master that was cut off and replaced may be well and answer, to nobody's use. To be called now and then.
        """
        with suppress(RedisError):
            self.master.ask()

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        self.master.close()


class AsyncLedger(_Calls):
    """Asynchronous client of the web tier; repeats a call only on a dead connection.

    Args:
        client: of a pool that waits for a connection as long as a call may.
        master, ack: as of `Ledger`.
        lag_s: by how much the event loop was late of late. An answer that a late loop did not read in time is no
            outage.
    """

    def __init__(
        self, client: redis.asyncio.Redis, master: Master, ack: RedisAck, *, lag_s: Callable[[], float]
    ) -> None:
        super().__init__(master, ack)
        self.client = client
        self._lag_s = lag_s
        self._answered_s = 0.0
        """When the last call was answered, by the monotonic clock."""
        self._batcher = SubmitBatcher(lambda operation: self._within(_ROUND_TRIP_S, self._perform(operation)))
        self._lacks: str | None = None
        """What its user may not do: why no call is made. "": nothing; None: nobody knows yet."""

    @classmethod
    def connect(
        cls,
        url: str,
        ack: RedisAck = "local",
        sentinels: Sentinels | None = None,
        *,
        max_connections: int = 64,
        lag_s: Callable[[], float] = lambda: 0.0,
    ) -> "AsyncLedger":
        """A client whose calls fail within about a second, unless they ask for more time."""
        master = Master(sentinels)
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=max_connections,
            # No limits per step: they would bound what a call may move, and cost a task each. A call has one in all.
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=0.5,
            # A restart of Redis leaves dead connections in the pool, and each is noticed only when it is used. One
            # repetition opens it anew (the scripts are idempotent); a timeout is not repeated.
            retry=redis.asyncio.retry.Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            **_keepalive(url),
        )
        pool.connection_class = watched_async(pool.connection_class, master)
        return cls(redis.asyncio.Redis.from_pool(pool), master, ack, lag_s=lag_s)

    async def run(self, operation: Operation[T], *, timeout_s: float = CALL_TIMEOUT_S) -> T:
        """The operation's value; raises like `Ledger.run`, and `RedisUnavailable` after `timeout_s` at the latest.

        A call with more than the usual time moves megabytes: no other one travels with it.
        """
        if self._lacks:
            raise RedisUnavailable(self._lacks, retry_after_s=spread(3))
        together = operation.gathers and timeout_s <= CALL_TIMEOUT_S
        asked = self._batcher.reply(operation) if together else self._perform(operation)
        return operation.read(await self._within(timeout_s, asked))

    async def _within(self, timeout_s: float, asked: Coroutine[Any, Any, T]) -> T:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asked
        except RedisError as error:
            raise self._told(error, began_s) from error
        except TimeoutError:
            raise self._told(RedisTimeoutError(), began_s) from None
        self._answered_s = time.monotonic()
        return answer

    def _told(self, error: RedisError, began_s: float) -> EmbedqError | RedisError:
        lag_s = self._lag_s()
        # A pause of Redis makes the loop busy, too, with all who are told of it. Then nobody gets an answer.
        others_are_answered = self._answered_s > began_s or lag_s >= _ROUND_TRIP_S
        if isinstance(error, RedisTimeoutError) and lag_s > _LATE_S and others_are_answered:
            return Overloaded(
                "This server was too busy to read the answer in time; try again.", retry_after_s=spread(3)
            )
        return translate(error)

    async def _perform(self, operation: Operation[Any]) -> Any:
        try:
            return self._reply(operation, await self._sent(self._commands(operation)))
        except NoScriptError:
            return self._reply(operation, await self._sent(self._commands(operation, whole=True)))
        except NotReplicated:
            await self.find_master()  # this one may have been cut off
            raise

    async def _sent(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) == 1:
            return [await self.client.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return await pipeline.execute(raise_on_error=False)

    async def try_out(self) -> RedisFacts:
        """What Redis says of itself, once all that the web tier needs was tried.

        Raises:
            RedisUnavailable: no answer, or its user lacks a right.
        """

        async def ask() -> RedisFacts:
            async with self.client.pubsub() as pubsub:
                await pubsub.subscribe(ENDED_CHANNEL)
                await pubsub.get_message(timeout=CALL_TIMEOUT_S)
            return facts_from(await self._sent(questions()))

        return await self._within(CALL_TIMEOUT_S, ask())

    async def require_usable(self) -> None:
        """Returns once Redis was tried out with success. Until then it is tried anew with each call.

        A right that is missing is told to all other calls too: some of them would hang.

        Raises:
            RedisUnavailable: as `try_out`.
            WrongRedis: no role can run on it.
        """
        if self._lacks != "":
            try:
                (await self.try_out()).require_usable()
            except RedisUnavailable as error:
                code = refusal(error.__cause__) if error.__cause__ else None
                self._lacks = error.detail if code == "NOPERM" else None
                raise
            self._lacks = ""

    async def find_master(self) -> None:
        """As of `Ledger`."""
        if self.master.service:
            with suppress(RedisError):
                await asyncio.to_thread(self.master.ask)

    async def close(self) -> None:
        """Closes the connections."""
        await self._batcher.close()
        await self.client.aclose()
        self.master.close()


def _keepalive(url: str) -> dict[str, Any]:
    # A unix socket has no peer to lose, and redis-py refuses the option for it.
    return {} if url.startswith("unix:") else {"socket_keepalive": True}

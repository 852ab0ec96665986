"""Runs operations: `Ledger` in workers, `AsyncLedger` in the web tier."""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from tasks.errors import EmbedqError, NotReplicated, Overloaded, RedisUnavailable, StorageFull, Unavailable, WrongRedis
from tasks.ledger.connection import Master, Refusals, watched, watched_async
from tasks.ledger.read import check_schema, read_schema
from tasks.ledger.redis_checks import RedisFacts, facts_from, questions
from tasks.ledger.redis_keys import CHANGED_CHANNEL, ROOT
from tasks.ledger.replicas import Replicas
from tasks.ledger.scripts import SCRIPTS, Command, Operation, sha, source
from tasks.ledger.submit_batcher import SubmitBatcher
from worker_config.redis_connection import FOR_GOOD, RedisAck, RedisUrl, explain, refusal

T = TypeVar("T")
A = TypeVar("A")

WORKER_RETRIES = 3
"""A worker repeats a call whose reply was lost: every script is idempotent. The web tier leaves that to its callers."""

_LATE_S = 0.25
"""Of an event loop: a call that failed in time then says nothing about Redis. With some thousand requests in flight the
loop was later than its own time limits, and every answer was `redis_unavailable` although Redis was well."""

CALL_TIMEOUT_S = 1.2
"""For one call of the web tier in all, unless it moves megabytes: its wait for a connection, opening it, and the
reply."""

SUBSCRIBE_TIMEOUT_S = 5.0
"""For the reply to a SUBSCRIBE of a worker."""

ROUND_TRIP_S = 1.0
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


class Ledger:
    """Synchronous client.

    Args:
        client: a connection to the Redis instance, with `decode_responses` off.
        clock_offset_ms: added to the server's clock; 0 outside tests.
        scripts: folder of the Lua files; another one only in tests that break them on purpose.
        refusals: where its connections note that they ended; None: they do not.
        master: who knows where the Redis is; None: the client does.
        replicas: who must have what was promised; None: nobody.

    Attributes:
        frozen_ms: the time at which scripts run instead of the server's; None outside tests.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        clock_offset_ms: int = 0,
        scripts: Path = SCRIPTS,
        refusals: Refusals | None = None,
        master: Master | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.client = client
        self.refusals = refusals or Refusals()
        self.clock_offset_ms = clock_offset_ms
        self.frozen_ms: int | None = None
        self._scripts = scripts
        self._master = master
        self._replicas = replicas

    @classmethod
    def connect(cls, url: str, ack: RedisAck = "local") -> "Ledger":
        """A client that repeats calls whose connection broke, for a few seconds at most.

        `socket_timeout` is above every blocking read, so that a half-open connection is noticed.
        """
        parsed, refusals = RedisUrl.parse(url), Refusals()
        master = Master(parsed, refusals) if parsed.service else None
        retry = Retry(ExponentialBackoff(cap=1, base=0.05), WORKER_RETRIES)
        client = redis.Redis.from_url(
            parsed.url,
            socket_timeout=5,
            socket_connect_timeout=2,
            health_check_interval=5,
            retry=retry,
            **_keepalive(parsed.url),
        )
        pool = client.connection_pool
        pool.connection_class = watched(pool.connection_class, refusals, master)
        return cls(client, refusals=refusals, master=master, replicas=Replicas() if ack == "replica" else None)

    def run(self, operation: Operation[T]) -> T:
        """The operation's value.

        Raises:
            RedisUnavailable: no answer.
            NotReplicated: no replica confirmed what was promised.
            StorageFull: refused for lack of memory.
            EmbedqError: whatever the operation's docstring names.
        """
        clock = _clock(self.frozen_ms, self.clock_offset_ms)
        replicas = self._replicas if operation.promised else None
        try:
            try:
                reply = self._replies(_commands(operation, clock, self._scripts), replicas)
            except NoScriptError:
                reply = self._replies(_commands(operation, clock, self._scripts, whole=True), replicas)
        except RedisError as error:
            raise translate(error) from error
        return operation.read(reply[0] if operation.script else reply)

    def _replies(self, commands: Sequence[Command], replicas: Replicas | None) -> list[Any]:
        question = replicas.question() if replicas else []
        if len(commands) == 1 and not question:
            return [self.client.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        with self.client.pipeline(transaction=False) as pipeline:
            for command in (*commands, *question):
                pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
            return _confirmed(pipeline.execute(raise_on_error=False), len(commands), replicas)

    def try_out(self, bells: str) -> RedisFacts:
        """What Redis says of itself, once all that a worker needs was tried. `bells`: the Celery queue that it hears.

        Raises:
            RedisUnavailable: no answer, or its user lacks a right.
        """
        try:
            with self.client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                pubsub.subscribe(CHANGED_CHANNEL)
                pubsub.get_message(timeout=SUBSCRIBE_TIMEOUT_S)
            with self.client.pipeline(transaction=False) as pipeline:
                for command in questions(bells):
                    pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
                began_s = time.time()
                replies = pipeline.execute(raise_on_error=False)
            return facts_from(replies, (began_s + time.time()) / 2)
        except RedisError as error:
            raise translate(error) from error

    def check_schema(self) -> bool:
        """Claims an empty Redis for this version of the data model, and whether it did so. One of several that see it.

        Raises:
            RedisUnavailable: no answer.
            SchemaMismatch: another version's data is there.
        """
        return not self.run(read_schema()) and self.run(check_schema())

    def run_id(self) -> str:
        """What Redis has called itself at its start, anew each time, and the number of the database.

        "" where it does not tell.

        Raises:
            RedisUnavailable: no answer.
        """
        try:
            run_id = self.client.info("server").get("run_id")
        except RedisError as error:
            raise translate(error) from error
        return f"{run_id}/{self.client.get_connection_kwargs().get('db') or 0}" if run_id else ""

    def find_master(self) -> None:
        """Asks the Sentinels, if there are any. What leads to a former master is given up at its next use.

        A master that was cut off and replaced may be well and answer, to nobody's use. To be called now and then.
        """
        if self._master is not None:
            with suppress(RedisError):
                self._master.ask()

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()
        if self._master is not None:
            self._master.close()


class AsyncLedger:
    """Asynchronous client of the web tier; repeats a call only on a dead connection.

    Args:
        client: of a pool that waits for a connection as long as a call may.
        refusals: of its connections.
        master, replicas: as of `Ledger`.
        lag_s: by how much the event loop was late of late. An answer that a late loop did not read in time is no
            outage.

    Attributes:
        frozen_ms: as of `Ledger`.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        refusals: Refusals,
        *,
        master: Master | None,
        replicas: Replicas | None,
        lag_s: Callable[[], float],
    ) -> None:
        self.client = client
        self.refusals = refusals
        self.frozen_ms: int | None = None
        self._lag_s = lag_s
        self._answered_s = 0.0
        """When the last call was answered, by the monotonic clock."""
        self._master = master
        self._replicas = replicas
        self._batcher = SubmitBatcher(self._gathered)
        self._inspecting: asyncio.Task[RedisFacts] | None = None
        self._usable = False
        self._lacks = ""
        """What its user may not do: why no call is made."""

    @classmethod
    def connect(
        cls,
        url: str,
        ack: RedisAck = "local",
        *,
        max_connections: int = 64,
        lag_s: Callable[[], float] = lambda: 0.0,
    ) -> "AsyncLedger":
        """A client whose calls fail within about a second, unless they ask for more time."""
        parsed, refusals = RedisUrl.parse(url), Refusals()
        master = Master(parsed, refusals) if parsed.service else None
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            parsed.url,
            max_connections=max_connections,
            # No limits per step: they would bound what a call may move, and cost a task each. A call has one in all.
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=0.5,
            # A restart of Redis leaves dead connections in the pool, and each is noticed only when it is used. One
            # repetition opens it anew (the scripts are idempotent); a timeout is not repeated.
            retry=redis.asyncio.retry.Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            **_keepalive(parsed.url),
        )
        pool.connection_class = watched_async(pool.connection_class, refusals, master)
        client = redis.asyncio.Redis.from_pool(pool)
        return cls(client, refusals, master=master, replicas=Replicas() if ack == "replica" else None, lag_s=lag_s)

    async def run(self, operation: Operation[T], *, timeout_s: float = CALL_TIMEOUT_S) -> T:
        """The operation's value; raises like `Ledger.run`, and `RedisUnavailable` after `timeout_s` at the latest.

        A call with more than the usual time moves megabytes: no other one travels with it.
        """
        if self._lacks:
            raise RedisUnavailable(self._lacks, retry_after_s=spread(3))
        if operation.gathers and timeout_s <= CALL_TIMEOUT_S:
            asked = self._batcher.reply(operation)
        else:
            asked = self._perform(operation)
        return operation.read(await self._within(timeout_s, asked))

    async def _within(self, timeout_s: float, asked: Coroutine[Any, Any, A]) -> A:
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
        others_are_answered = self._answered_s > began_s or lag_s >= ROUND_TRIP_S
        if isinstance(error, RedisTimeoutError) and lag_s > _LATE_S and others_are_answered:
            return Overloaded(
                "This server was too busy to read the answer in time; try again.", retry_after_s=spread(3)
            )
        return translate(error)

    async def _gathered(self, operation: Operation[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(ROUND_TRIP_S):
                reply: list[Any] = await self._perform(operation)
        except TimeoutError:
            raise RedisTimeoutError("no answer in time") from None
        return reply

    async def _perform(self, operation: Operation[Any]) -> Any:
        clock = _clock(self.frozen_ms, 0)
        replicas = self._replicas if operation.promised else None
        try:
            reply = await self._replies(_commands(operation, clock), replicas)
        except NoScriptError:
            reply = await self._replies(_commands(operation, clock, whole=True), replicas)
        return reply[0] if operation.script else reply

    async def _replies(self, commands: Sequence[Command], replicas: Replicas | None) -> list[Any]:
        question = replicas.question() if replicas else []
        if len(commands) == 1 and not question:
            return [await self.client.execute_command(*commands[0])]  # type: ignore[no-untyped-call]
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in (*commands, *question):
                pipeline.execute_command(*command)
            replies = await pipeline.execute(raise_on_error=False)
        try:
            return _confirmed(replies, len(commands), replicas)
        except NotReplicated:
            await self.find_master()  # this one may have been cut off
            raise

    async def inspect(self) -> RedisFacts:
        """What Redis says of itself, and whose clock is ahead. Who asks meanwhile waits for the same answer.

        Raises:
            RedisUnavailable: no answer.
        """
        # However many ask, they take one connection of the pool, which the subscriptions of everybody need too.
        if self._inspecting is None or self._inspecting.done():
            self._inspecting = asyncio.create_task(self._within(CALL_TIMEOUT_S, self._inspect()), name="inspect redis")
        return await asyncio.shield(self._inspecting)

    async def _inspect(self) -> RedisFacts:
        async with self.client.pipeline(transaction=False) as pipeline:
            for command in questions():
                pipeline.execute_command(*command)
            began_s = time.time()
            replies = await pipeline.execute(raise_on_error=False)
        return facts_from(replies, (began_s + time.time()) / 2)

    async def require_usable(self) -> None:
        """Returns once all that the web tier needs was tried with success. Until then it is tried anew with each call.

        A right that is missing is told to all other calls too: some of them would hang.

        Raises:
            RedisUnavailable: no answer, or its user lacks a right.
            WrongRedis: no role can run on it.
        """
        if self._usable:
            return
        try:
            facts = await self.inspect()
            await self._within(CALL_TIMEOUT_S, self._try_subscription())
        except RedisUnavailable as error:
            code = refusal(error.__cause__) if error.__cause__ else None
            self._lacks = error.detail if code == "NOPERM" else ""
            raise
        facts.require_usable()
        self._usable, self._lacks = True, ""

    async def _try_subscription(self) -> None:
        async with self.client.pubsub() as pubsub:
            await pubsub.subscribe(CHANGED_CHANNEL)
            await pubsub.get_message(timeout=CALL_TIMEOUT_S)

    async def check_schema(self) -> bool:
        """As of `Ledger`."""
        return not await self.run(read_schema()) and await self.run(check_schema())

    async def find_master(self) -> None:
        """As of `Ledger`."""
        if self._master is not None:
            with suppress(RedisError):
                await asyncio.to_thread(self._master.ask)

    async def close(self) -> None:
        """Closes the connections."""
        await self._batcher.close()
        await self.client.aclose()
        if self._master is not None:
            self._master.close()


def _clock(frozen_ms: int | None, offset_ms: int) -> int | str:
    return offset_ms if frozen_ms is None else f"@{frozen_ms}"


def _commands(
    operation: Operation[Any], clock: int | str, scripts: Path = SCRIPTS, *, whole: bool = False
) -> Sequence[Command]:
    """`whole`: with the text of the script, which Redis does not know yet."""
    if not operation.script:
        return operation.commands
    head = ("EVAL", source(operation.script, scripts)) if whole else ("EVALSHA", sha(operation.script, scripts))
    return [(*head, 0, ROOT, clock, operation.queue, *operation.arguments, *operation.gathers)]


def _confirmed(replies: list[Any], count: int, replicas: Replicas | None) -> list[Any]:
    """The first `count` replies, behind which the answers of replicas may be; raises the first error."""
    errors = (reply for reply in replies[:count] if isinstance(reply, Exception))
    error = next(errors, None) or (replicas.doubt(replies[count:]) if replicas else None)
    if error is not None:
        raise error
    return replies[:count]


def _keepalive(url: str) -> dict[str, Any]:
    # A unix socket has no peer to lose, and redis-py refuses the option for it.
    return {} if url.startswith("unix:") else {"socket_keepalive": True}

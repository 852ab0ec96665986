"""Runs operations: one small synchronous executor for workers, one small asynchronous for the web tier."""

import asyncio
import random
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha1
from pathlib import Path
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from tasks.errors import EmbedqError, Overloaded, RedisUnavailable, StorageFull, Unavailable, WrongRedis
from tasks.ledger.connection import AsyncMaster, Master, Refusals, watched, watched_async
from tasks.ledger.gather import ROUND_TRIP_S, Gatherer
from tasks.ledger.keys import ENDED_CHANNEL, ROOT, SCHEMA_VERSION
from tasks.ledger.operations import Operation, check_schema
from tasks.ledger.redis_checks import RedisFacts, facts_from, questions
from tasks.ledger.replicas import Replicas
from worker_config.redis_connection import FOR_GOOD, RedisAck, RedisUrl, explain, refusal

T = TypeVar("T")

WORKER_RETRIES = 3
"""A worker repeats a call whose reply was lost: every script is idempotent. The web tier leaves that to its callers."""

SCRIPTS = Path(__file__).parent / "lua"

_USES = re.compile(r"^-- uses: (.+)$", re.MULTILINE)
_MAY_USE = re.compile(r"^-- may use: (\w+ \w+)$", re.MULTILINE)
_NAMED = re.compile(r"^ *local (?:([\w,\s]+) = named\([\w, ]+\)|function \w+\(([\w,\s]+)\) +-- named\b)", re.MULTILINE)

_LATE_S = 0.25
"""Of an event loop: a call that failed in time then says nothing about Redis. With some thousand requests in flight the
loop was later than its own time limits, and every answer was `redis_unavailable` although Redis was well."""

CALL_TIMEOUT_S = 1.2
"""For one call of the web tier in all, unless it moves megabytes. Waiting for a connection, opening it and each read
have limits of their own, but they add up when Redis hangs and many calls queue for the pool."""

SUBSCRIBE_TIMEOUT_S = 5.0
"""For the reply to a SUBSCRIBE of a worker."""

POOL_TIMEOUT_S = 1.0
"""For a free connection of such calls."""

SOCKET_TIMEOUT_S = 1.0
"""For each write and each reply of such a call, as redis-py counts: from the first byte to the last."""


@cache
def source(name: str, folder: Path = SCRIPTS) -> str:
    """The text of one script: the shared parts that it and they name with `-- uses:`, each once, and its own file.

    Redis runs the whole text with each call, so a script does not pay for parts that it does not use. A part that it
    seldom needs is named with one `-- may use: PART FUNCTION`. Its functions are made when this one is called: those of
    a CLAIM took 25 of 43 microseconds of a SUBMIT that called none of them.

    Raises:
        ValueError: parts use one another in a circle.
    """
    parts = {"shared/base": (folder / "shared/base.lua").read_text()}

    def add(part: str, users: tuple[str, ...] = ()) -> None:
        if part in users:
            raise ValueError(f"a circle of shared parts: {', '.join((*users, part))}")
        text = (folder / f"{part}.lua").read_text()
        for used in _named_after(_USES, text):
            if f"shared/{used}" not in parts:
                add(f"shared/{used}", (*users, part))
        seldom = _named_after(_MAY_USE, text)
        if seldom:
            used, function = seldom
            always = len(parts)
            add(f"shared/{used}", (*users, part))
            inner = [parts.pop(name) for name in list(parts)[always:]]
            parts[used] = "\n".join([f"local function {function}(...)", *inner, f"return {function}(...)", "end"])
        parts[part] = text

    add(name)
    return "\n".join(parts.values())


def _named_after(directive: re.Pattern[str], text: str) -> list[str]:
    line = directive.search(text)
    return line[1].split() if line else []


@cache
def argument_names(name: str) -> tuple[str, ...]:
    """The arguments that a script takes by name, in the order in which it reads them; none where it takes few."""
    own = (SCRIPTS / f"{name}.lua").read_text()
    head = _NAMED.search(own) or _NAMED.search(
        "".join((SCRIPTS / f"shared/{used}.lua").read_text() for used in _named_after(_USES, own))
    )
    return tuple((head[1] or head[2]).replace(",", " ").split()) if head else ()


@cache
def _sha(name: str, folder: Path = SCRIPTS) -> str:
    return sha1(source(name, folder).encode(), usedforsecurity=False).hexdigest()


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
    """Synchronous executor.

    Args:
        client: a connection to the Redis instance, with `decode_responses` off.
        root: prefix of all keys.
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
        root: str = ROOT,
        clock_offset_ms: int = 0,
        scripts: Path = SCRIPTS,
        refusals: Refusals | None = None,
        master: Master | None = None,
        replicas: Replicas | None = None,
    ) -> None:
        self.refusals = refusals or Refusals()
        self.client = client
        self._master = master
        self._replicas = replicas
        self.root = root
        self.clock_offset_ms = clock_offset_ms
        self.frozen_ms: int | None = None
        self._scripts = scripts

    @classmethod
    def connect(cls, url: str, ack: RedisAck = "local") -> "Ledger":
        """An executor that repeats calls whose connection broke, for a few seconds at most.

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
        """The operation's reply.

        Raises:
            RedisUnavailable: no answer.
            NotReplicated: no replica confirmed what was promised.
            StorageFull: refused for lack of memory.
            EmbedqError: whatever the operation's docstring names.
        """
        try:
            reply = self._evaluate(operation)
        except RedisError as error:
            raise translate(error) from error
        return operation.read(reply[0] if operation.merges else reply)

    def _evaluate(self, operation: Operation[T]) -> Any:
        clock = self.clock_offset_ms if self.frozen_ms is None else f"@{self.frozen_ms}"
        arguments = (0, self.root, clock, operation.queue, *own_arguments(operation))
        try:
            return self._call(operation, "EVALSHA", _sha(operation.script, self._scripts), *arguments)
        except NoScriptError:
            return self._call(operation, "EVAL", source(operation.script, self._scripts), *arguments)

    def _call(self, operation: Operation[T], *command: Any) -> Any:
        if self._replicas is None or not operation.promised:
            return self.client.execute_command(*command)  # type: ignore[no-untyped-call]
        with self.client.pipeline(transaction=False) as pipeline:
            for one in (command, *self._replicas.question()):
                pipeline.execute_command(*one)  # type: ignore[no-untyped-call]
            return _confirmed(self._replicas, *pipeline.execute(raise_on_error=False))

    def try_out(self, bells: str) -> RedisFacts:
        """What Redis says of itself, once all that a worker needs was tried. `bells`: the Celery queue that it hears.

        Raises:
            RedisUnavailable: no answer, or its user lacks a right.
        """
        try:
            with self.client.pubsub() as pubsub:  # type: ignore[no-untyped-call]
                pubsub.subscribe(ENDED_CHANNEL)
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
        """Claims an empty Redis for this version of the data model, and whether it was empty.

        Raises:
            RedisUnavailable: no answer.
            SchemaMismatch: another version's data is there.
        """
        try:
            found = self.client.get(f"{self.root}:schema")
        except RedisError as error:
            raise translate(error) from error
        if found != b"%d" % SCHEMA_VERSION:
            self.run(check_schema())
        return found is None

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
    """Asynchronous executor for the web tier; repeats a call only on a dead connection.

    Args:
        client: for usual calls.
        large: for calls that move megabytes.
        refusals: of the connections of both.
        master: as of `Ledger`.
        replicas: as of `Ledger`.
        lag_s: by how much the event loop was late of late. An answer that a late loop did not read in time is no
            outage.
        round_trip_s: that calls which travel together may take.

    Attributes:
        frozen_ms: as of `Ledger`.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        large: redis.asyncio.Redis,
        refusals: Refusals,
        *,
        master: AsyncMaster | None,
        replicas: Replicas | None,
        lag_s: Callable[[], float],
        round_trip_s: float,
    ) -> None:
        self.client = client
        self.refusals = refusals
        self.frozen_ms: int | None = None
        self._large = large
        self._lag_s = lag_s
        self._round_trip_s = round_trip_s
        self._replied_s = 0.0
        """When the last call was answered, by the monotonic clock."""
        self._master = master
        self._replicas = replicas
        self._inspecting: asyncio.Task[RedisFacts] | None = None
        self._usable = False
        self._lacks = ""
        """What its user may not do: why no call is made."""
        gatherer = partial(Gatherer, client, round_trip_s, CALL_TIMEOUT_S)
        self._gatherer = gatherer()
        # On lines of their own: what is only read does not wait for replicas.
        self._promising = gatherer(replicas=replicas) if replicas else self._gatherer

    @classmethod
    def connect(
        cls,
        url: str,
        ack: RedisAck = "local",
        *,
        max_connections: int = 64,
        lag_s: Callable[[], float] = lambda: 0.0,
        round_trip_s: float = ROUND_TRIP_S,
        socket_timeout_s: float = SOCKET_TIMEOUT_S,
        pool_timeout_s: float = POOL_TIMEOUT_S,
    ) -> "AsyncLedger":
        """An executor whose calls fail within about a second, unless they ask for more time."""
        parsed, refusals = RedisUrl.parse(url), Refusals()
        master = AsyncMaster(parsed, refusals) if parsed.service else None
        connect = partial(_client, parsed.url, refusals, master, max_connections=max_connections)
        usual = connect(socket_timeout=socket_timeout_s, pool_timeout=pool_timeout_s)
        # A limit per write and reply would bound what a call may move: these calls have theirs as a whole.
        # Nor may they be refused for waiting on each other for a connection, while they have time.
        large = connect(socket_timeout=None, pool_timeout=None)
        replicas = Replicas() if ack == "replica" else None
        return cls(usual, large, refusals, master=master, replicas=replicas, lag_s=lag_s, round_trip_s=round_trip_s)

    async def run(self, operation: Operation[T], *, timeout_s: float = CALL_TIMEOUT_S) -> T:
        """The operation's reply; raises like `Ledger.run`, and `RedisUnavailable` after `timeout_s` at the latest.

        A call with more than the usual time moves megabytes: it gets a connection of its own, so that it delays nobody.
        """
        if self._lacks:
            raise RedisUnavailable(self._lacks, retry_after_s=spread(3))
        began_s = time.monotonic()
        try:
            if timeout_s == CALL_TIMEOUT_S:
                reply = await self._evaluate(operation, large=False)  # the gatherer has this limit for each call
            else:
                async with asyncio.timeout(timeout_s):
                    reply = await self._evaluate(operation, large=timeout_s > CALL_TIMEOUT_S)
        except RedisError as error:
            raise self._told(error, began_s, timeout_s) from error
        except TimeoutError:
            raise self._told(RedisTimeoutError(), began_s, timeout_s) from None
        self._replied_s = time.monotonic()
        return operation.read(reply)

    def _told(self, error: RedisError, began_s: float, timeout_s: float = CALL_TIMEOUT_S) -> EmbedqError | RedisError:
        lag_s = self._lag_s()
        # A pause of Redis makes the loop busy, too, with all who are told of it. Then nobody gets an answer.
        others_are_answered = self._replied_s > began_s or lag_s >= min(timeout_s, self._round_trip_s)
        if isinstance(error, RedisTimeoutError) and lag_s > _LATE_S and others_are_answered:
            return Overloaded(
                "This server was too busy to read the answer in time; try again.", retry_after_s=spread(3)
            )
        return translate(error)

    async def _evaluate(self, operation: Operation[T], *, large: bool) -> Any:
        clock = 0 if self.frozen_ms is None else f"@{self.frozen_ms}"
        head, own = (0, ROOT, clock, operation.queue), own_arguments(operation)
        try:
            return await self._call(operation, large, ("EVALSHA", _sha(operation.script), *head), own)
        except NoScriptError:
            return await self._call(operation, large, ("EVAL", source(operation.script), *head), own)

    async def _call(self, operation: Operation[T], large: bool, head: tuple[Any, ...], own: Sequence[Any]) -> Any:
        if not large:
            gatherer = self._promising if operation.promised else self._gatherer
            return await (gatherer.merge(head, own) if operation.merges else gatherer.call(*head, *own))
        reply = await self._alone(operation, *head, *own)
        return reply[0] if operation.merges else reply

    async def _alone(self, operation: Operation[T], *command: Any) -> Any:
        if self._replicas is None or not operation.promised:
            return await self._large.execute_command(*command)  # type: ignore[no-untyped-call]
        async with self._large.pipeline(transaction=False) as pipeline:
            for one in (command, *self._replicas.question()):
                pipeline.execute_command(*one)
            return _confirmed(self._replicas, *await pipeline.execute(raise_on_error=False))

    async def inspect(self) -> RedisFacts:
        """What Redis says of itself, and whose clock is ahead. Who asks meanwhile waits for the same answer.

        Raises:
            RedisUnavailable: no answer.
        """
        # However many ask, they take one connection of the pool, which the subscriptions of everybody need too.
        if self._inspecting is None or self._inspecting.done():
            self._inspecting = asyncio.create_task(self._inspect(), name="inspect redis")
        return await asyncio.shield(self._inspecting)

    async def _inspect(self) -> RedisFacts:
        before_s = time.monotonic()
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S), self.client.pipeline(transaction=False) as pipeline:
                for command in questions():
                    pipeline.execute_command(*command)
                began_s = time.time()
                replies = await pipeline.execute(raise_on_error=False)
            return facts_from(replies, (began_s + time.time()) / 2)
        except RedisError as error:
            raise self._told(error, before_s) from error
        except TimeoutError:
            raise self._told(RedisTimeoutError(), before_s) from None

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
            await self._try_subscription()
        except RedisUnavailable as error:
            code = refusal(error.__cause__) if error.__cause__ else None
            self._lacks = error.detail if code == "NOPERM" else ""
            raise
        facts.require_usable()
        self._usable, self._lacks = True, ""

    async def _try_subscription(self) -> None:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S), self.client.pubsub() as pubsub:
                await pubsub.subscribe(ENDED_CHANNEL)
                await pubsub.get_message(timeout=CALL_TIMEOUT_S)
        except RedisError as error:
            raise translate(error) from error
        except TimeoutError:
            raise translate(RedisTimeoutError()) from None

    async def check_schema(self) -> bool:
        """As of `Ledger`."""
        try:
            found = await self._gatherer.call("GET", f"{ROOT}:schema")
        except RedisError as error:
            raise translate(error) from error
        if found != b"%d" % SCHEMA_VERSION:
            await self.run(check_schema())
        return bool(found is None)

    async def find_master(self) -> None:
        """As of `Ledger`."""
        if self._master is not None:
            with suppress(RedisError):
                await self._master.ask()

    async def close(self) -> None:
        """Closes the connections."""
        for gatherer in {self._gatherer, self._promising}:
            await gatherer.close()
        await self.client.aclose()
        await self._large.aclose()
        if self._master is not None:
            await self._master.close()


def _confirmed(replicas: Replicas, reply: Any, *answers: Any) -> Any:
    error = reply if isinstance(reply, Exception) else replicas.doubt(answers)
    if error is not None:
        raise error
    return reply


def _client(
    url: str,
    refusals: Refusals,
    master: AsyncMaster | None,
    *,
    max_connections: int,
    socket_timeout: float | None,
    pool_timeout: float | None,
) -> redis.asyncio.Redis:
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=pool_timeout,
        socket_timeout=socket_timeout,
        socket_connect_timeout=0.5,
        # A restart of Redis leaves dead connections in the pool, and each is noticed only when it is used. One
        # repetition opens it anew (the scripts are idempotent); a timeout is not repeated, so nothing takes longer.
        retry=redis.asyncio.retry.Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        **_keepalive(url),
    )
    pool.connection_class = watched_async(pool.connection_class, refusals, master)
    return redis.asyncio.Redis.from_pool(pool)


def _keepalive(url: str) -> dict[str, Any]:
    # A unix socket has no peer to lose, and redis-py refuses the option for it.
    return {} if url.startswith("unix:") else {"socket_keepalive": True}


def own_arguments(operation: Operation[Any]) -> list[Any]:
    """ARGV of a call behind what `lua/shared/base.lua` reads: those by name in the script's order, then the others.

    Of an operation that merges their number comes first.

    Raises:
        ValueError: the script takes other names.
    """
    names = argument_names(operation.script)
    try:
        named = [operation.named[name] for name in names]
    except KeyError:
        named = []
    if not len(names) == len(operation.named) == len(named):
        raise ValueError(f"{operation.script}.lua takes {names}, not {tuple(operation.named)}")
    # Enum members are str subclasses whose redis-py encoding would be their repr on some versions: plain str here.
    values = [str(a) if isinstance(a, str) else a for a in (*named, *operation.arguments)]
    return [len(values), *values] if operation.merges else values

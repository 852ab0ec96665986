"""Where the Redis is that serves, and what a connection is worth whose Redis answers that it cannot serve: nothing.

Behind an address that stays (a proxy, a name, a virtual address) a failover leaves connections to the former master
open. It answers each call with a refusal, for ever, while a new connection would reach the new one. A web tier that
took such answers for replies said 503 for 90 s, until it was restarted.

Where Sentinels name the master, every new connection asks them, and one to a former master is given up at its next use.
"""

import asyncio
import threading
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import Sentinel

from worker_config.redis_connection import SENTINEL_TIMEOUT_S, Sentinels, refusal

_ELSEWHERE = {"LOADING", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED"}
"""Another Redis may serve by now. A user's rights are the same there, and a busy script ends where it runs."""


class Master:
    """Where the Redis is. For threads; an event loop asks in one.

    redis-py's own pool of connections asks Sentinels without a lock, and two askers at a time may forget one.

    Attributes:
        service: what Sentinels call it; "": a URL names the server itself, and nobody is asked.
        moves: how often a connection turned out to lead to the wrong place. A subscription that is older may lead there
            too.
    """

    def __init__(self, sentinels: Sentinels | None = None) -> None:
        self.service = sentinels.service if sentinels else ""
        self.moves = 0
        self._known: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._sentinel = Sentinel([])  # type: ignore[no-untyped-call]
        # Without the default's three repetitions with pauses of seconds: the next Sentinel is the repetition.
        self._sentinel.sentinels = [
            redis.Redis.from_url(
                one,
                socket_timeout=SENTINEL_TIMEOUT_S,
                socket_connect_timeout=SENTINEL_TIMEOUT_S,
                retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            )
            for one in (sentinels.urls if sentinels else ())
        ]

    def ask(self) -> None:
        """Asks the Sentinels, if there are any.

        Raises:
            RedisConnectionError: none knows a master that is up.
        """
        if not self.service:
            return
        with self._lock:
            address: tuple[str, int] = self._sentinel.discover_master(self.service)  # type: ignore[no-untyped-call]
            if self._known not in {None, address}:
                self.moves += 1  # subscriptions lead to the former master, which may be well and say nothing
            self._known = address

    def lead(self, connection: Any) -> None:
        """Gives a connection that is to be opened the address of the master; raises as `ask`."""
        self.ask()
        if self._known is not None:
            connection.host, connection.port = self._known

    def left(self, connection: Any) -> bool:
        """Whether an open connection leads to a former master."""
        return self._known is not None and connection.is_connected and (connection.host, connection.port) != self._known

    def refused(self, error: ResponseError) -> RedisError:
        """What to raise instead of an error that Redis has answered: a failure of the connection, or the error."""
        code = refusal(error)
        if code not in _ELSEWHERE:
            return error
        self.moves += 1
        return RedisConnectionError(f"{code} {error}")

    def close(self) -> None:
        """Closes the connections to the Sentinels."""
        self._sentinel.close()


def watched(kind: Any, master: Master) -> Any:
    """A connection class of redis-py whose connections lead to the master or fail.

    redis-py closes a connection that fails, and repeats the call on a new one as often as its `retry` says.
    """

    class Watched(kind):  # type: ignore[misc]  # over TCP, TLS or a unix socket
        def connect_check_health(self, **options: Any) -> None:
            if not self.is_connected:
                master.lead(self)
            super().connect_check_health(**options)

        def send_packed_command(self, command: Any, **options: Any) -> None:
            if master.left(self):
                self.disconnect()
            super().send_packed_command(command, **options)

        def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().read_response(*arguments, **options)
            except ResponseError as error:
                raise master.refused(error) from None

    return Watched


def watched_async(kind: Any, master: Master) -> Any:
    """The same of `redis.asyncio`, which packs commands in C as redis-py's synchronous connections do.

    In Python that is half of what a call of the web tier costs.
    """
    from hiredis import pack_command  # noqa: PLC0415 - only the web tier has it

    class Watched(kind):  # type: ignore[misc]
        def pack_command(self, *words: Any) -> list[bytes]:
            name, *arguments = words
            return [pack_command((*name.split(), *arguments))]  # such as CONFIG GET

        async def connect_check_health(self, **options: Any) -> None:
            if master.service and not self.is_connected:
                await asyncio.to_thread(master.lead, self)
            await super().connect_check_health(**options)

        async def send_packed_command(self, command: Any, **options: Any) -> None:
            if master.left(self):
                await self.disconnect(nowait=True)
            await super().send_packed_command(command, **options)

        async def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*arguments, **options)
            except ResponseError as error:
                raise master.refused(error) from None

    return Watched

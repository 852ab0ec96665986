"""What a connection is worth whose Redis answers that it cannot serve: nothing.

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

from worker_config.redis_connection import SENTINEL_TIMEOUT_S, RedisUrl, refusal

_ELSEWHERE = {"LOADING", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS", "UNBLOCKED"}
"""Another Redis may serve by now. A user's rights are the same there, and a busy script ends where it runs."""


class OutOfService(RedisConnectionError):
    """The reply was a refusal that ends the connection. The text is Redis's own."""


class Refusals:
    """How often a connection turned out to lead to the wrong place. A subscription that is older may lead there too."""

    def __init__(self) -> None:
        self.count = 0

    def raised(self, error: ResponseError) -> RedisError:
        """What to raise instead of this error."""
        code = refusal(error)
        if code not in _ELSEWHERE:
            return error
        self.count += 1
        return OutOfService(f"{code} {error}")


Address = tuple[str, int]


class Master:
    """The master of a service, as its Sentinels name it. For threads; an event loop asks in one.

    redis-py's own pool of connections asks without a lock, and two askers at a time may forget a Sentinel.
    """

    def __init__(self, url: RedisUrl, refusals: Refusals) -> None:
        self._service = url.service
        self._refusals = refusals
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
            for one in url.sentinels
        ]
        self.known: Address | None = None

    def ask(self) -> Address:
        """The address now.

        Raises:
            RedisConnectionError: no Sentinel knows a master that is up.
        """
        with self._lock:
            address: Address = self._sentinel.discover_master(self._service)  # type: ignore[no-untyped-call]
            if self.known not in {None, address}:
                self._refusals.count += 1  # subscriptions lead to the former master, which may be well and say nothing
            self.known = address
        return address

    def close(self) -> None:
        """Closes the connections to the Sentinels."""
        self._sentinel.close()


def watched(kind: Any, refusals: Refusals, master: Master | None = None) -> Any:
    """A connection class of redis-py for which such replies are failures of the connection: they raise `OutOfService`.

    redis-py then closes the connection, and repeats the call on a new one as often as its `retry` says. `master`: who
    knows where a new one leads to; None: its own parameters say so.
    """

    class Watched(kind):  # type: ignore[misc]  # over TCP, TLS or a unix socket
        def connect_check_health(self, **options: Any) -> None:
            if master is not None and not self.is_connected:
                self.host, self.port = master.ask()
            super().connect_check_health(**options)

        def send_packed_command(self, command: Any, **options: Any) -> None:
            if master is not None and self.is_connected and (self.host, self.port) != master.known:
                self.disconnect()
            super().send_packed_command(command, **options)

        def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().read_response(*arguments, **options)
            except ResponseError as error:
                raise refusals.raised(error) from None

    return Watched


def watched_async(kind: Any, refusals: Refusals, master: Master | None = None) -> Any:
    """The same of `redis.asyncio`, which packs commands in C as redis-py's synchronous connections do.

    In Python that is half of what a call of the web tier costs.
    """
    from hiredis import pack_command  # noqa: PLC0415 - only the web tier has it

    class Watched(kind):  # type: ignore[misc]
        def pack_command(self, *words: Any) -> list[bytes]:
            name, *arguments = words
            return [pack_command((*name.split(), *arguments))]  # such as CONFIG GET

        async def connect_check_health(self, **options: Any) -> None:
            if master is not None and not self.is_connected:
                self.host, self.port = await asyncio.to_thread(master.ask)
            await super().connect_check_health(**options)

        async def send_packed_command(self, command: Any, **options: Any) -> None:
            if master is not None and self.is_connected and (self.host, self.port) != master.known:
                await self.disconnect(nowait=True)
            await super().send_packed_command(command, **options)

        async def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*arguments, **options)
            except ResponseError as error:
                raise refusals.raised(error) from None

    return Watched

"""One connection that carries many calls per round trip, without what redis-py does around each of them.

Its pool, pipeline and time limits cost more per round trip than the calls themselves. A line keeps its connection to
itself and sets one time limit.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tasks.ledger.connection import OutOfService

ROUND_TRIP_S = 1.0


def packed(command: str, arguments: Sequence[object]) -> bytes:
    """A command as Redis reads it. Bytes go as they are, everything else as its `str`."""
    pieces = [b"*%d\r\n$%d\r\n%b\r\n" % (len(arguments) + 1, len(command), command.encode())]
    for argument in arguments:
        data = argument if type(argument) is bytes else str(argument).encode()
        pieces += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(pieces)


class Line:
    """A connection of the class and with the parameters of a pool. Opened by its first use; one user at a time."""

    def __init__(self, pool: ConnectionPool) -> None:
        # No limit per read: on Python 3.11 each would cost a task, and the round trip has one.
        self._connection = pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": None})

    async def exchange(self, commands: Sequence[bytes]) -> list[Any]:
        """The replies in order, errors of Redis among them. Repeated once on a new connection, if this one is no good.

        All are when it broke, else those alone that Redis refused to serve. A restart of Redis leaves a dead connection
        behind, which is noticed only when it is used; a failover one that leads to a Redis which refuses. Nothing is
        repeated after a time limit, so nothing takes longer than that.

        Raises:
            redis.RedisError: no connection, or no answer within `ROUND_TRIP_S`.
        """
        try:
            async with asyncio.timeout(ROUND_TRIP_S):
                try:
                    replies = await self._once(commands)
                except RedisConnectionError:
                    return await self._once(commands)
                refused = [i for i, reply in enumerate(replies) if isinstance(reply, OutOfService)]
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
            replies = [await self._reply() for _ in commands]
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

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except (ResponseError, OutOfService) as error:
            return error

    async def close(self) -> None:
        """Drops the connection; the next use opens another."""
        await self._connection.disconnect(nowait=True)

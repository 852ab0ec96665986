"""What a connection is worth whose Redis answers that it cannot serve: nothing. The one place that knows such answers.

Behind an address that stays (a proxy, a name, a virtual address) a failover leaves connections to the former master
open. It answers each call with a refusal, for ever, while a new connection would reach the new one. A web tier that
took such answers for replies said 503 for 90 s, until it was restarted.
"""

import re
from typing import Any

from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

# At the start of an error, and with a "-" before it where Redis 6.2 quotes it inside the error of a script.
_REFUSAL = re.compile(r"(^|-)(LOADING|BUSY|MISCONF|READONLY|MASTERDOWN|NOREPLICAS|NOAUTH|NOPERM|WRONGPASS|DENIED)\b")

# redis-py takes the code off an error for which it has a class.
_CODES: dict[type[RedisError], str] = {
    AuthenticationError: "WRONGPASS",
    BusyLoadingError: "LOADING",
    MasterDownError: "MASTERDOWN",
    NoPermissionError: "NOPERM",
    ReadOnlyError: "READONLY",
}

_ELSEWHERE = {"LOADING", "MISCONF", "READONLY", "MASTERDOWN", "NOREPLICAS"}
"""Another Redis may serve by now. A user's rights are the same there, and a busy script ends where it runs."""


class OutOfService(RedisConnectionError):
    """The reply was a refusal that ends the connection. The text is Redis's own."""


def refusal(error: RedisError) -> str | None:
    """The code with which Redis refuses to serve; None when the error says something else."""
    if type(error) in _CODES:
        return _CODES[type(error)]
    match = _REFUSAL.search(str(error)) if isinstance(error, ResponseError | OutOfService) else None
    return match[2] if match else None


class Refusals:
    """How many connections have ended so. A subscription that is older leads to the same place, and is never told."""

    def __init__(self) -> None:
        self.count = 0

    def raised(self, error: ResponseError) -> RedisError:
        """What to raise instead of this error."""
        code = refusal(error)
        if code not in _ELSEWHERE:
            return error
        self.count += 1
        return OutOfService(f"{code} {error}")


def watched(kind: Any, refusals: Refusals) -> Any:
    """A connection class of redis-py for which such replies are failures of the connection: they raise `OutOfService`.

    redis-py then closes the connection, and repeats the call on a new one as often as its `retry` says.
    """

    class Watched(kind):  # type: ignore[misc]  # over TCP, TLS or a unix socket
        def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return super().read_response(*arguments, **options)
            except ResponseError as error:
                raise refusals.raised(error) from None

    return Watched


def watched_async(kind: Any, refusals: Refusals) -> Any:
    """The same of `redis.asyncio`."""

    class Watched(kind):  # type: ignore[misc]
        async def read_response(self, *arguments: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*arguments, **options)
            except ResponseError as error:
                raise refusals.raised(error) from None

    return Watched

"""Subscriptions of tests: what was published up to now, read without waiting for what may never come."""

from types import TracebackType
from typing import Any, Self

import redis

from tests.processes import PATIENCE_S, wait_until


class Listener:
    """A subscription to one channel, open once the object exists."""

    def __init__(self, client: redis.Redis, channel: str) -> None:
        self._client = client
        self._channel = channel
        self._pubsub = client.pubsub()  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(channel)
        self._next()

    def messages(self) -> list[bytes]:
        """Everything published before this call and not read yet."""
        self._pubsub.ping()  # its answer comes after all that was published before
        found: list[bytes] = []
        while (message := self._next())["type"] != "pong":
            found.append(message["data"])
        return found

    def close(self) -> None:
        """Returns when the server has noticed too."""
        self._pubsub.close()
        wait_until(self._is_deaf, message=f"{self._channel} still has a subscriber")

    def _is_deaf(self) -> bool:
        return int(self._client.pubsub_numsub(self._channel)[0][1]) == 0

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] | None = self._pubsub.get_message(timeout=PATIENCE_S)
        assert message is not None, "the subscription is silent"
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

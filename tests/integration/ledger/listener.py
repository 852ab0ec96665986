"""Subscriptions of tests: what was published up to now, read without waiting for what may never come."""

from types import TracebackType
from typing import Any, Self

import redis

from tests.processes import PATIENCE_S, wait_until


class Listener:
    """A subscription to some channels, of which the server knows once the object exists. A context manager."""

    def __init__(self, client: redis.Redis, *channels: str) -> None:
        self._client, self._channels = client, channels
        self._pubsub: Any = client.pubsub()  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(*channels)
        for _ in channels:
            self._next()

    def heard(self) -> list[tuple[str, bytes]]:
        """Channel and data of everything that was published before this call and not read yet."""
        self._pubsub.ping()  # its answer comes after all that was published before
        found: list[tuple[str, bytes]] = []
        while (message := self._next())["type"] != "pong":
            found.append((message["channel"].decode(), message["data"]))
        return found

    def messages(self) -> list[bytes]:
        return [data for _, data in self.heard()]

    def close(self) -> None:
        """Returns when the server has noticed too."""
        self._pubsub.close()
        wait_until(lambda: not any(number for _, number in self._client.pubsub_numsub(*self._channels)))

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

"""What is published, read without waiting for what may never come."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis


class Heard:
    """A subscription to some channels."""

    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    def messages(self) -> list[bytes]:
        """All that was published before this call and not read yet."""
        self._pubsub.ping()  # its answer comes after all that was published before
        found: list[bytes] = []
        while (message := self._pubsub.get_message(timeout=5)) and message["type"] != "pong":
            found.append(message["data"])
        return found


@contextmanager
def listening(client: "redis.Redis", *channels: str) -> Iterator[Heard]:
    """A subscription that the server knows of."""
    pubsub = client.pubsub()  # type: ignore[no-untyped-call]
    pubsub.subscribe(*channels)
    for _ in channels:
        assert pubsub.get_message(timeout=5)
    yield Heard(pubsub)
    pubsub.close()
    while any(number for _, number in client.pubsub_numsub(*channels)):
        pass

"""How a thread that waits for work is woken without Celery: a subscription that is kept for the process's life."""

import time
from collections.abc import Callable

import redis
from redis.exceptions import RedisError

from tasks.errors import RedisUnavailable
from tasks.ledger.client import Ledger, translate

_STOP_CHECK_S = 0.2

_UNANSWERED = 5
"""Looks of `_STOP_CHECK_S`: redis-py pings with each look until Redis answers, and gives up never."""


class Wakeup:
    """One channel. Used by one thread only, which subscribes before it says that it waits."""

    def __init__(self, ledger: Ledger, channel: str) -> None:
        self._client, self._master = ledger.client, ledger.master
        self._moves_before = 0
        self._channel = channel
        self._pubsub: redis.client.PubSub | None = None

    def open(self) -> None:
        """Subscribes, unless it is subscribed already, to the Redis that serves.

        Whoever is registered as waiting without a subscription would be passed over.

        Raises:
            RedisUnavailable: Redis does not answer, or refuses.
        """
        if self._moves_before != self._master.moves:
            self.close()
        if self._pubsub is not None:
            return
        self._moves_before = self._master.moves
        pubsub = self._client.pubsub(ignore_subscribe_messages=False)  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(self._channel)
            reply = pubsub.get_message(timeout=5)
            if reply is None or reply["type"] != "subscribe":
                raise redis.ConnectionError("no answer to SUBSCRIBE")
        except RedisError as error:
            pubsub.close()
            raise translate(error) from error
        self._pubsub = pubsub

    def try_open(self) -> bool:
        """`open`, and whether it could: not while Redis is away."""
        try:
            self.open()
        except (RedisUnavailable, RedisError):
            self.close()
            return False
        return True

    def wait(self, timeout_s: float, stop: Callable[[], bool]) -> None:
        """Returns at the first wake-up, at the end of the time, or when `stop()` says so.

        A broken connection ends the wait at once, a half-open one after some pings; the next `open` makes a new one.
        """
        until = time.monotonic() + timeout_s
        try:
            while (left := until - time.monotonic()) > 0 and not stop():
                if self._pubsub is None:
                    return
                message = self._pubsub.get_message(timeout=min(left, _STOP_CHECK_S))
                if message is not None and message["type"] == "message":
                    while self._pubsub.get_message(timeout=0):  # of one wait: they say nothing more
                        pass
                    return
                if self._pubsub.health_check_response_counter > _UNANSWERED:
                    raise redis.ConnectionError("the subscription does not answer")
        except RedisError:
            self.close()

    def close(self) -> None:
        """Ends the subscription."""
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None

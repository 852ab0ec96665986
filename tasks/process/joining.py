"""How a worker joins: it waits for Redis and the storage, and warns of a Redis that may lose work."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import redis
from redis.exceptions import RedisError

from tasks.errors import Unavailable
from tasks.ledger import Ledger, operations
from tasks.ledger.durability import RedisFacts
from tasks.process.role import Start
from tasks.process.stop import Stopping

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


def wait_for(place: str, call: Callable[[], T], *, while_raises: type[Unavailable], stop: Callable[[], bool]) -> T:
    """The result of `call`, which is repeated every second while it raises this error; others go through.

    Each reason is logged once, with the name of the place that is waited for.

    Raises:
        Stopping: a stop was asked for first.
    """
    logged = ""
    while not stop():
        try:
            return call()
        except while_raises as error:
            if error.detail != logged:
                _log.warning("waiting for %s: %s", place, error.detail)
            logged = error.detail
            time.sleep(_RETRY_S)
    raise Stopping


def take_over(ledger: Ledger, queue: str, start: Start) -> None:
    """Declares lost what dead processes held: earlier children of this worker, and the worker in whose place it is.

    Raises:
        RedisUnavailable: no answer.
    """
    for worker in filter(None, (start.worker_id, start.predecessor)):
        ledger.run(operations.abandon(queue, worker))


def warn_about_durability(client: redis.Redis) -> list[str]:
    """Logs, and returns, one warning for each setting of the server with which accepted work can be lost.

    Hosted services refuse to tell their settings; there is no warning then.
    """
    try:
        facts = RedisFacts(client.info())
    except RedisError:
        return []
    warnings = [
        f"Redis has {check.name} {check.detail}; {check.advice} (docs/operations.md)."
        for check in facts.settings()
        if not check.fine
    ]
    for warning in warnings:
        _log.warning("%s", warning)
    return warnings

"""How a worker joins: it waits for Redis and the storage, and refuses a Redis that cannot serve or keep work."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from tasks.errors import Unavailable, WrongRedis
from tasks.ledger import Ledger, operations
from tasks.process.role import Start
from tasks.process.stop import Stopping
from worker_config.celery_app import bell_queue

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


def wait_for(place: str, call: Callable[[], T], *, while_raises: type[Unavailable], stop: Callable[[], bool]) -> T:
    """The result of `call`, which is repeated every second while it raises this error; others go through.

    Each reason is logged once, with the name of the place that is waited for.

    Raises:
        Stopping: a stop was asked for first.
        WrongRedis: there is nothing to wait for.
    """
    logged = ""
    while not stop():
        try:
            return call()
        except WrongRedis:
            raise
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


def require_usable(ledger: Ledger, queue: str) -> None:
    """Returns when Redis can do all that a worker of this queue needs, and has data of this version.

    Logs one warning for each setting of the server with which accepted work can be lost.

    Raises:
        RedisUnavailable: no answer, or a right is missing.
        WrongRedis: it can never serve.
        SchemaMismatch: another version's data is there.
    """
    warnings = ledger.try_out(bell_queue(queue)).require_usable()
    ledger.check_schema()
    for warning in warnings:
        _log.warning("%s", warning)

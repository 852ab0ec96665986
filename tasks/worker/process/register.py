"""How a worker joins: it says what it loads, waits for Redis and the storage, refuses a Redis that cannot serve."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from redis.exceptions import RedisError

from tasks.errors import EmbedqError, Unavailable, WrongRedis
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, loading
from tasks.ledger.read import check_schema
from tasks.worker.process.stop import Stopping
from worker_config.celery_app import bell_queue

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RETRY_S = 1.0
SAY_AGAIN_S = 30.0
TELL_EVERY_S = 5.0
LOADING_TTL_S = 20.0


@contextmanager
def saying_what_loads(ledger: Ledger, queue: str, what: LoadingWorker) -> Iterator[None]:
    """A model is being loaded while the block lasts: said in the log at once and again, and in the ledger.

    Whoever joins or stops takes it off the ledger.
    """
    done = threading.Event()

    def say() -> None:
        said_at = time.time()
        _log.info("loading %s (from %s)", what.model, what.source)
        while not done.is_set():
            with suppress(EmbedqError, RedisError):  # it is waited for, or refused, once the model is loaded
                ledger.run(check_schema())
                ledger.run(loading(queue, what, int(LOADING_TTL_S * 1000)))
            done.wait(TELL_EVERY_S)
            if time.time() - said_at >= SAY_AGAIN_S:
                said_at = time.time()
                _log.info("still loading %s (from %s), for %.0f s", what.model, what.source, said_at - what.since)

    threading.Thread(target=say, name="loading", daemon=True).start()
    try:
        yield
    finally:
        done.set()


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


def require_usable(ledger: Ledger, queue: str) -> None:
    """Returns when Redis can do all that a worker of this queue needs, and has data of this version.

    Logs one warning for each setting of the server with which accepted work can be lost.

    Raises:
        RedisUnavailable: no answer, or a right is missing.
        WrongRedis: it can never serve.
        SchemaMismatch: another version's data is there.
    """
    warnings = ledger.try_out(bell_queue(queue)).require_usable()
    ledger.run(check_schema())
    for warning in warnings:
        _log.warning("%s", warning)

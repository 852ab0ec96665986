"""How a worker joins: it says what it loads, waits for Redis and the storage, refuses a Redis that cannot serve."""

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self, TypeVar

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


class LoadingNotice:
    """A model is being loaded while the `with` block lasts: said in the log at once and again, and in the ledger.

    Args:
        ledger: of the process.
        queue: the served name.
        worker_id: who loads.
        model: what.
        source: from where, in words.
    """

    def __init__(self, ledger: Ledger, queue: str, worker_id: str, model: str, source: str) -> None:
        self._ledger = ledger
        self._queue = queue
        self._what = LoadingWorker(worker_id, socket.gethostname(), model, source, time.time())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loading", daemon=True)

    def __enter__(self) -> Self:
        """Says it."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """It is loaded, or cannot be: whoever joins or stops takes the notice away."""
        self._done.set()

    def _run(self) -> None:
        began = said = time.monotonic()
        _log.info("loading %s (from %s)", self._what.model, self._what.source)
        while not self._done.is_set():
            with suppress(EmbedqError, RedisError):  # it is waited for, or refused, once the model is loaded
                self._ledger.run(check_schema())
                self._ledger.run(loading(self._queue, self._what, int(LOADING_TTL_S * 1000)))
            self._done.wait(TELL_EVERY_S)
            now = time.monotonic()
            if now - said >= SAY_AGAIN_S:
                said = now
                _log.info("still loading %s (from %s), for %.0f s", self._what.model, self._what.source, now - began)


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

"""The bell: one Celery message without data, which tells a worker to look into the ledger."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from celery import Celery

from worker_config.celery_app import BELL_TASK, POOL_S, bell_queue
from worker_config.redis_connection import explain

_log = logging.getLogger(__name__)

_CLOSE_S = 1.0
"""For bells on their way, when a process stops. A Redis that stands still may have them: the work is in the ledger."""


class BellThread:
    """Sends bells from a thread of its own, so that nobody waits for a Redis that is away or stands still.

    Args:
        app: with the Redis that carries the bells.
        told: called in that thread with the queue of each bell, and whether it went out; must not raise.
    """

    def __init__(self, app: Celery, told: Callable[[str, bool], None]) -> None:
        self._app = app
        self._told = told
        # One thread: the ledger allows about one bell per second and queue, and an outage is logged once.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bell")
        self._last: Future[None] | None = None
        self._failing = False

    def send_bell(self, queue: str) -> None:
        """Sends one bell to the workers of `queue`, later and elsewhere; returns at once and never raises."""
        self._last = self._pool.submit(self._send, queue)

    def warm_up(self) -> None:
        """Loads what the first bell would load: tens of milliseconds of imports."""
        self._pool.submit(self._load).result()

    def close(self) -> None:
        """Waits for bells on their way, not for long, and closes the connections to Redis."""
        if self._last is not None:
            wait([self._last], _CLOSE_S)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._app.close()

    def _load(self) -> None:
        _ = self._app.amqp.queues
        _ = self._app.connection_for_write().transport
        # Celery looks for a result backend, though there is none, once in each thread: 15 ms of entry points.
        _ = self._app.backend

    def _send(self, queue: str) -> None:
        try:
            send_bell(self._app, queue)
        except Exception as error:  # noqa: BLE001 - kombu raises whatever its transport raises; nobody reads this future
            if not self._failing:
                why = explain(error) or type(error).__name__
                _log.warning("the bell of %s was not sent (%s); workers look for work", queue, why)
            self._failing = True
        else:
            self._failing = False
        self._told(queue, not self._failing)


def send_bell(app: Celery, queue: str) -> None:
    """Sends one bell to the workers of a queue, unless one waits for them already: a second would tell them nothing.

    So messages do not pile up for workers that are busy or gone. A connection that stood before, and may have broken
    since or lead to a Redis that is no longer the master, is made anew and used once more.

    Raises:
        Exception: whatever kombu's transport raises; the bell was not sent.
    """
    connection: Any
    with app.pool.acquire(block=True, timeout=POOL_S) as connection:
        stood = connection.connected
        try:
            _send(app, connection, bell_queue(queue))
        except Exception:
            connection.collect()
            if not stood:
                raise
        else:
            return
        try:
            _send(app, connection, bell_queue(queue))
        except Exception:
            connection.collect()
            raise


def _send(app: Celery, connection: Any, bells: str) -> None:
    channel = connection.default_channel
    waiting: int = channel.queue_declare(queue=bells, durable=True).message_count
    if waiting:
        # A former master that is cut off would say so for ever. Only a write, which changes nothing, tells it apart.
        channel.client.ltrim(bells, 0, -1)
    else:
        # Nothing is declared: a binding would be a write that a full Redis refuses.
        app.send_task(BELL_TASK, queue=bells, connection=connection, declare=[], retry=False, ignore_result=True)

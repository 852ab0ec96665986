"""The bell: one data-free Celery message that tells a worker of a model to look into the ledger."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from worker_config import celery_app
from worker_config.settings import Settings

_log = logging.getLogger(__name__)


class Bell:
    """Sends bells off the event loop. One that cannot be sent is left to idle workers, who look for work themselves.

    Args:
        settings: with the broker that carries the bells.
        count: called with the model and whether the bell went out.
    """

    def __init__(self, settings: Settings, count: Callable[[str, bool], None]) -> None:
        self._celery = celery_app.make_celery(settings)
        self._count = count
        # One thread: the ledger allows about one bell per second and model, and an outage is logged once.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bell")
        self._failing = False

    def send_bell(self, model: str) -> None:
        """Sends one bell to the workers of `model`, later and elsewhere; returns at once and never raises."""
        self._pool.submit(self._send, model)

    def warm_up(self) -> None:
        """Loads what the first bell would load: tens of milliseconds of imports."""
        self._pool.submit(self._load).result()

    def close(self) -> None:
        """Waits for bells on their way and closes the connections to the broker."""
        self._pool.shutdown(cancel_futures=True)
        self._celery.close()

    def _load(self) -> None:
        _ = self._celery.amqp.queues
        _ = self._celery.connection_for_write().transport
        # Celery looks for a result backend, though there is none, once in each thread: 15 ms of entry points.
        _ = self._celery.backend

    def _send(self, model: str) -> None:
        try:
            celery_app.send_bell(self._celery, model)
        except Exception as error:  # noqa: BLE001 - kombu raises whatever its transport raises; nobody reads this future
            self._count(model, False)
            if not self._failing:
                _log.warning("the bell of %s was not sent (%s); workers look for work", model, type(error).__name__)
            self._failing = True
            return
        self._count(model, True)
        self._failing = False

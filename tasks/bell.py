"""Sending the bell from a worker process."""

import logging
from collections.abc import Callable

from celery import Celery
from kombu.exceptions import OperationalError

from worker_config.celery_app import DRAIN_TASK, bell_queue

_log = logging.getLogger(__name__)


def bell_sender(app: Celery, model: str) -> Callable[[], None]:
    """A function that sends one bell message and never raises: a bell that is not sent, the watchdog rings again."""
    queue = bell_queue(model)

    def send() -> None:
        try:
            app.send_task(DRAIN_TASK, queue=queue, retry=False)
        except (OperationalError, OSError) as error:
            _log.warning("bell not sent (%s); the watchdog rings again", type(error).__name__)

    return send

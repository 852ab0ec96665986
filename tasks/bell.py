"""Sending the bell from a worker process."""

import logging
from collections.abc import Callable

from celery import Celery

from worker_config.celery_app import DRAIN_TASK, bell_queue

_log = logging.getLogger(__name__)


def bell_sender(app: Celery, model: str) -> Callable[[], bool]:
    """A function that sends one bell message and says whether it went out. It never raises."""
    queue = bell_queue(model)

    def send() -> bool:
        try:
            app.send_task(DRAIN_TASK, queue=queue, retry=False)
        except Exception as error:  # noqa: BLE001 - kombu lets through what its transport raises, a full Redis's refusal too
            _log.warning("bell not sent (%s)", type(error).__name__)
            return False
        return True

    return send

"""How a bell message is sent, by the web tier and by workers."""

from typing import Any

from celery import Celery

from worker_config.celery_app import DRAIN_TASK, bell_queue

_POOL_S = 0.5
"""For a free connection; the default waits for ever."""


def send_bell(app: Celery, model: str) -> None:
    """Sends one bell to the workers of `model`, unless one waits for them already: a second would tell them nothing.

    So messages do not pile up for workers that are busy or gone.

    Raises:
        Exception: whatever kombu's transport raises; the bell was not sent.
    """
    connection: Any
    with app.pool.acquire(block=True, timeout=_POOL_S) as connection:
        try:
            _send(app, connection, bell_queue(model))
        except BaseException:
            connection.collect()  # it may lead to a Redis that is no longer the master
            raise


def _send(app: Celery, connection: Any, queue: str) -> None:
    waiting: int = connection.default_channel.queue_declare(queue=queue, durable=True).message_count
    if waiting:
        # A former master that is cut off would say so for ever. Only a write, which changes nothing, tells it apart.
        connection.default_channel.client.ltrim(queue, 0, -1)
        return
    # Nothing is declared: a binding would be a write that a full Redis refuses, and a queue's own name needs none.
    app.send_task(DRAIN_TASK, queue=queue, connection=connection, declare=[], retry=False, ignore_result=True)

"""A bell over transports that are no Redis: one message at most, without data, and no command of Redis."""

from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from stack.testing import free_port
from worker_config.bell import send_bell
from worker_config.celery_app import DRAIN_TASK, bell_queue, make_celery
from worker_config.settings import load_settings


@pytest.fixture(params=["memory://", "filesystem://"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Celery:
    nowhere = f"redis://127.0.0.1:{free_port()}/0"
    app = make_celery(load_settings(redis_url=nowhere, broker_url=request.param), queues=("m",))
    folder = str(tmp_path)
    app.conf.broker_transport_options |= {"data_folder_in": folder, "data_folder_out": folder}
    return app


def test_one_bell_of_a_queue_waits(app: Celery) -> None:
    for queue in ("m", "m", "n", "m"):
        send_bell(app, queue)
    with app.connection_for_read() as connection:
        channel: Any = connection.default_channel
        for queue in ("m", "n"):
            bell = channel.basic_get(bell_queue(queue))
            assert bell.headers["task"] == DRAIN_TASK
            assert bell.payload[:2] == [[], {}]
            assert channel.basic_get(bell_queue(queue)) is None


def test_a_worker_holds_one_bell_at_a_time(app: Celery) -> None:
    assert (app.conf.task_acks_late, app.conf.worker_prefetch_multiplier) == (True, 1)

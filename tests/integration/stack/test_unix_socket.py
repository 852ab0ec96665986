"""A Redis on a unix socket, as the local stack starts it, serves the ledger and the broker alike."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.ledger.client import AsyncLedger, Ledger
from tasks.ledger.read import check_schema
from tests.processes import RedisServer
from worker_config.celery_app import BELL_TASK, bell_queue, make_celery
from worker_config.settings import Settings


@pytest.fixture
def socket_server(redis_server: RedisServer, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, unix_socket=True).start()
    yield server
    server.stop()


async def test_ledger_and_bells_work_over_a_socket(socket_server: RedisServer) -> None:
    web, worker = AsyncLedger.connect(socket_server.url), Ledger.connect(socket_server.url)
    await web.run(check_schema())
    worker.run(check_schema())
    await web.close()

    settings = Settings(redis_url=f"{socket_server.url}?db=1", served_name="m")
    with make_celery(settings) as app:
        app.send_task(BELL_TASK)

    worker.client.select(1)
    assert worker.client.llen(bell_queue("m")) == 1
    worker.close()

"""A Redis whose memory is full: new work is refused, accepted work is finished, and no worker dies of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.ledger.task import Lane
from tests.faults.conftest import QUICK
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until
from worker_config.celery_app import bell_queue, make_celery
from worker_config.settings import load_settings
from worker_config.wake_up import send_bell

pytestmark = pytest.mark.faults

SMALL_BYTES = 24 * 2**20
TEXTS = [f"{n} a short text" for n in range(1000)]


@pytest.fixture
def small_redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "small", maxmemory_bytes=SMALL_BYTES).start()
    yield server
    server.stop()


def _settings(**more: Any) -> dict[str, Any]:
    return QUICK | {"fake_tokens_per_s": 0} | more


def test_what_is_accepted_fits_with_its_vectors(small_redis: RedisServer, tmp_path: Path) -> None:
    with Roles(tmp_path, small_redis.url) as roles, small_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        api = roles.api(max_backlog_bulk_s=1e6)
        worker = roles.worker(**_settings())
        api.wait_ready()
        accepted, refused = _submit_until_refused(api.client())
        for task_id in accepted:
            client.completed(task_id)
        memory = connection.info("memory")
        print(f"accepted {len(accepted)} x {len(TEXTS)}, used {memory['used_memory']} of {memory['maxmemory']}")  # noqa: T201 - the counts
        assert refused.json()["error"]["code"] == "storage_full"
        assert len(accepted) * len(TEXTS) * 4 * 384 > SMALL_BYTES / 4, "refused far too early"
        assert memory["used_memory"] < memory["maxmemory"]
        assert worker.running
        assert "Traceback" not in worker.log()


def test_running_work_is_finished_on_a_redis_that_became_full(small_redis: RedisServer, tmp_path: Path) -> None:
    with Roles(tmp_path, small_redis.url) as roles, small_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        worker = roles.worker(**_settings(fake_tokens_per_s=4000))
        tasks = [client.submit(TEXTS[:100], lane=Lane.BULK) for _ in range(20)]
        wait_until(lambda: client.counter("committed_items") > 0, message="work under way")
        pid = worker.pid
        _fill(connection)
        for task in tasks:
            client.completed(task)
        assert (worker.running, worker.pid) == (True, pid)


def test_a_worker_that_starts_beside_a_full_redis_empties_it(small_redis: RedisServer, tmp_path: Path) -> None:
    with Roles(tmp_path, small_redis.url) as roles, small_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        tasks = [client.submit([text]) for text in TEXTS[:50]]
        _fill(connection)
        worker = roles.worker(**_settings())
        for task in tasks:
            client.completed(task)
        connection.config_set("maxmemory", SMALL_BYTES)
        celery = make_celery(load_settings(redis_url=small_redis.url))
        send_bell(celery, client.model)
        wait_until(lambda: connection.llen(bell_queue(client.model)) == 0, message="its parent hears bells")
        celery.close()
        assert worker.running


def _fill(connection: redis.Redis) -> None:
    connection.config_set("maxmemory", 2**19)
    with pytest.raises(redis.OutOfMemoryError):
        connection.set("foreign", "x")


def _submit_until_refused(http: httpx.Client) -> tuple[list[str], httpx.Response]:
    accepted: list[str] = []
    with http:
        for _ in range(100):
            answer = http.post("/v1/tasks", json={"input": TEXTS, "lane": "bulk"})
            if answer.status_code != httpx.codes.ACCEPTED:
                return accepted, answer
            accepted.append(answer.json()["id"])
    raise AssertionError("never refused")

"""A Redis whose memory is full: new work is refused, accepted work is finished, and no worker dies of it."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tasks.ledger.client import Ledger
from tasks.ledger.task import Lane
from tests.faults.conftest import QUICK, ring
from tests.ledger_client import LedgerClient
from tests.processes import RedisServer, Roles, wait_until

pytestmark = pytest.mark.faults

SMALL_BYTES = 24 * 2**20
TEXTS = [f"{n} a short text" for n in range(1000)]
SETTINGS: dict[str, Any] = QUICK | {"fake_tokens_per_s": 4000}


def test_what_is_accepted_is_finished_on_a_full_redis(private_redis: RedisServer, tmp_path: Path) -> None:
    with private_redis.client() as connection:
        connection.config_set("maxmemory", SMALL_BYTES)
        client = LedgerClient(Ledger(connection))
        with Roles(tmp_path, private_redis.url) as roles:
            api, worker = roles.api(max_backlog_bulk_s=1e6), roles.worker(**SETTINGS | {"fake_tokens_per_s": 0})
            api.wait_ready()
            accepted, refused = _submit_until_refused(api.client())
            for task in accepted:
                client.completed(task)
            assert refused.json()["error"]["code"] == "storage_full"
            assert len(accepted) * len(TEXTS) * 4 * 384 > SMALL_BYTES / 4, "refused far too early"
            assert connection.info("memory")["used_memory"] < SMALL_BYTES

            worker.stop()
            worker.settings |= SETTINGS
            worker.start()
            tasks = [client.submit(TEXTS[:100], lane=Lane.BULK) for _ in range(20)]
            before = client.counter("committed_items")
            wait_until(lambda: client.counter("committed_items") > before, message="work under way")
            _fill(connection)
            for task in tasks:
                client.completed(task)
            assert worker.running
            assert "Traceback" not in worker.log()


def test_a_worker_that_starts_beside_a_full_redis_empties_it(private_redis: RedisServer, private_roles: Roles) -> None:
    with private_redis.client() as connection:
        client = LedgerClient(Ledger(connection))
        tasks = [client.submit([text]) for text in TEXTS[:50]]
        _fill(connection)
        worker = private_roles.worker(**SETTINGS)
        for task in tasks:
            client.completed(task)
        connection.config_set("maxmemory", SMALL_BYTES)
        ring(private_redis, client.model)
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

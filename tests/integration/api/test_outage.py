"""Redis down, hung, full or without its bells: what the web tier says meanwhile, and that it goes on by itself."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import problem
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, ServedApp, code_of
from tests.integration.api.things import INGESTION, KEYED
from tests.processes import RedisServer, wait_until
from worker_config.celery_app import bell_queue


@pytest.fixture
def client(private_redis: RedisServer, root: Path) -> Iterator[httpx.Client]:
    with ServedApp(private_redis.url, storage_url=str(root)) as served:
        yield served.client


def submit(client: httpx.Client, **headers: str) -> httpx.Response:
    return client.post("/v1/tasks", json={"input": "a private text"}, headers=headers)


def test_while_redis_is_down_and_back_again(private_redis: RedisServer, client: httpx.Client) -> None:
    def shown() -> Any:
        return client.get("/v1/service").json()

    with LedgerWorker(private_redis.url, MODEL) as worker:
        worker.announce()
    location = submit(client).headers["location"]
    seen = wait_until(lambda: shown()["redis"] if shown()["models"][0]["workers"] else None)
    assert seen["memory_percent"] == 100 * seen["used_bytes"] // seen["limit_bytes"]
    private_redis.stop()
    refusals = [submit(client), client.post("/v1/embeddings", json={"input": "x"}), client.get(location)]
    assert [code_of(answer) for answer in refusals] == [(503, "redis_unavailable")] * 3
    assert all(1 <= int(a.headers["retry-after"]) <= 120 for a in refusals)
    assert client.get("/health/live").status_code == 200
    assert client.get("/health/ready").status_code == 503
    # Before the next look of the watchdog it is a missing worker that it names.
    wait_until(lambda: client.get("/health/ready").json()["error"]["param"] == "redis")
    wait_until(lambda: "embedq_redis_up 0.0" in client.get("/metrics").text)
    last = wait_until(lambda: None if (body := shown())["redis"]["up"] else body)  # what was last seen
    assert last["redis"]["seen_at"] < last["time"]
    assert [(model["id"], len(model["workers"])) for model in last["models"]] == [(MODEL, 1)]
    with ServedApp(private_redis.url) as late:  # it starts meanwhile
        assert late.client.get("/health/live").status_code == 200
        unknown = late.client.post("/v1/tasks", json={"input": "x", "model": "other"})
        assert unknown.json()["error"]["code"] == "redis_unavailable"
        private_redis.start()
        for each in (client, late.client):
            assert submit(each).status_code == 202
            wait_until(lambda: "embedq_subscribed 1.0" in each.get("/metrics").text)  # noqa: B023 - it is asked here
    assert client.get(location).json()["status"] == "queued"
    with LedgerWorker(private_redis.url, MODEL) as worker, worker.serving():
        answer = client.post("/v1/embeddings", json={"input": "x"})
    assert answer.status_code == 200, answer.text


def test_a_hung_redis_is_a_503_and_a_repetition_with_a_key_is_one_task_with_a_bell(
    private_redis: RedisServer, client: httpx.Client
) -> None:
    key = {"idempotency-key": "1"}
    wait_until(lambda: client.get("/health/ready").json()["error"]["param"] == "worker")
    private_redis.send(signal.SIGSTOP)
    try:
        unanswered = submit(client, **key)  # what is in the socket by now Redis reads when it goes on
        ready = client.get("/health/ready")
    finally:
        private_redis.send(signal.SIGCONT)
    assert code_of(unanswered) == (503, "redis_unavailable")
    assert ready.json()["error"]["param"] == "redis"
    wait_until(lambda: submit(client, **key).status_code == 202)
    with private_redis.client() as connection:
        assert len(list(connection.scan_iter("eq:task:*"))) == 1

        def bell() -> bytes | None:
            found = connection.lindex(bell_queue(MODEL), 0)
            assert found is None or isinstance(found, bytes)
            return found

        message = wait_until(bell, message="no bell")
        assert (b"private" in message, b"embedq.bell" in message) == (False, True), "it carries no data"
        connection.delete(bell_queue(MODEL))
        wait_until(bell, message="the lost bell was not replaced")


def test_a_full_redis_takes_no_new_work_and_what_runs_still_commits(
    private_redis: RedisServer, client: httpx.Client, storage: Storage
) -> None:
    INGESTION.make(client)
    with LedgerWorker(private_redis.url, MODEL) as worker, private_redis.client() as connection:
        worker.announce()
        location = submit(client).headers["location"]
        before = sorted(stored.name for stored in storage.stored(""))
        connection.config_set("maxmemory", 1)
        for kind in KEYED:
            answer = client.post(kind.path, **kind.body)
            problem(answer, 503, "storage_full")
            assert int(answer.headers["retry-after"]) > 0
        worker.work()
        assert client.get(location, params={"wait": 20}).json()["status"] == "completed"
    assert sorted(stored.name for stored in storage.stored("")) == before

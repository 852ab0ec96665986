"""Redis down, back again, or full: what the web tier says meanwhile."""

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, ServedApp, code_of
from tests.processes import RedisServer, wait_until

NO_REPLICA = ("min-replicas-to-write", "1")


@pytest.fixture
def client(private_redis: RedisServer) -> Iterator[httpx.Client]:
    with ServedApp(private_redis.url) as served:
        yield served.client


def submit(client: httpx.Client, text: str = "x") -> httpx.Response:
    return client.post("/v1/tasks", json={"input": text})


def test_while_redis_is_down_and_back_again(private_redis: RedisServer, client: httpx.Client) -> None:
    location = submit(client).headers["location"]
    private_redis.stop()

    refusals = [submit(client), client.post("/v1/embeddings", json={"input": "x"}), client.get(location)]

    assert [code_of(answer) for answer in refusals] == [(503, "redis_unavailable")] * 3
    assert all(1 <= int(a.headers["retry-after"]) <= 120 for a in refusals)
    assert client.get("/health/live").status_code == 200
    assert client.get("/health/ready").status_code == 503
    # Before the next look of the watchdog it is a missing worker that it names.
    wait_until(lambda: client.get("/health/ready").json()["error"]["param"] == "redis")
    wait_until(lambda: "embedq_redis_up 0.0" in client.get("/metrics").text)
    private_redis.start()

    assert submit(client).status_code == 202
    assert client.get(location).json()["status"] == "queued"
    wait_until(lambda: "embedq_subscribed 1.0" in client.get("/metrics").text)
    with LedgerWorker(private_redis.url, MODEL) as worker, worker.serving():
        answer = client.post("/v1/embeddings", json={"input": "x"})
    assert answer.status_code == 200, answer.text


def test_it_starts_while_redis_is_down(private_redis: RedisServer) -> None:
    private_redis.stop()
    with ServedApp(private_redis.url) as served:
        client = served.client
        assert client.get("/health/live").status_code == 200
        assert submit(client).status_code == 503
        unknown = client.post("/v1/tasks", json={"input": "x", "model": "other"})
        assert unknown.json()["error"]["code"] == "redis_unavailable"

        private_redis.start()

        assert submit(client).status_code == 202
        wait_until(lambda: "embedq_subscribed 1.0" in client.get("/metrics").text)


def test_a_hung_redis_is_a_503_too(private_redis: RedisServer, client: httpx.Client) -> None:
    assert submit(client).status_code == 202
    private_redis.send(signal.SIGSTOP)
    try:
        answer = submit(client)
        ready = client.get("/health/ready")
    finally:
        private_redis.send(signal.SIGCONT)

    assert code_of(answer) == (503, "redis_unavailable")
    assert ready.json()["error"]["param"] == "redis"
    wait_until(lambda: submit(client).status_code == 202)


@pytest.mark.parametrize(
    ("setting", "code"), [(("REPLICAOF", "127.0.0.1", "1"), "READONLY"), (("CONFIG SET", *NO_REPLICA), "NOREPLICAS")]
)
def test_a_redis_that_can_be_read_and_takes_no_writes_is_not_ready_and_says_why(
    private_redis: RedisServer, client: httpx.Client, setting: tuple[str, ...], code: str
) -> None:
    with LedgerWorker(private_redis.url, MODEL) as worker:
        worker.announce()
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    with private_redis.client() as connection:
        connection.execute_command(*setting)
        ready = client.get("/health/ready")
        wait_until(lambda: "embedq_redis_up 0.0" in client.get("/metrics").text)
        connection.execute_command("REPLICAOF", "NO", "ONE")
        connection.config_set("min-replicas-to-write", 0)
    assert (ready.status_code, ready.json()["error"]["param"]) == (503, "redis"), ready.text
    assert code in ready.json()["detail"]
    wait_until(lambda: client.get("/health/ready").status_code == 200)


def test_a_repetition_with_a_key_is_one_task_even_if_only_the_answer_was_lost(
    private_redis: RedisServer, client: httpx.Client
) -> None:
    def keyed() -> httpx.Response:
        return client.post("/v1/tasks", json={"input": "x"}, headers={"idempotency-key": "1"})

    private_redis.send(signal.SIGSTOP)
    try:
        unanswered = keyed()  # what is in the socket by now Redis reads when it goes on
    finally:
        private_redis.send(signal.SIGCONT)
    wait_until(lambda: keyed().status_code == 202)

    assert unanswered.json()["error"]["code"] == "redis_unavailable"
    with private_redis.client() as connection:
        assert len(list(connection.scan_iter("eq:task:*"))) == 1


def test_a_full_redis_refuses_tasks_and_running_work_still_commits(
    private_redis: RedisServer, client: httpx.Client
) -> None:
    with LedgerWorker(private_redis.url, MODEL) as worker, private_redis.client() as connection:
        worker.announce()
        location = submit(client).headers["location"]
        before = connection.config_get("maxmemory")["maxmemory"]
        connection.config_set("maxmemory", 1)

        refused = submit(client)
        worker.work()
        finished = client.get(location, params={"wait": 20})
        connection.config_set("maxmemory", before)

    assert code_of(refused) == (503, "storage_full")
    assert finished.json()["status"] == "completed"

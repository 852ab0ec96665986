"""Limits of one key over HTTP: what is refused, what the caller is told, and that others do not feel it."""

import hashlib
import socket
import time
from collections.abc import Callable

import httpx
import redis

from tasks.ledger.scripts import source
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, KEYS, ServedApp, code_of, make_key
from tests.made_keys import found


def test_requests_of_a_key_are_counted_and_those_of_others_are_not(
    app: ServedApp, redis_client: redis.Redis, redis_url: str
) -> None:
    client = app.client
    app.process.ledger.frozen_ms = round(time.time() * 1000)  # nothing comes back meanwhile
    ops = found(client, redis_url)
    slow = make_key(client, ops, "slow", limits={"requests_per_second": 2})
    redis_client.script_flush()
    take = hashlib.sha1(source("request_rate").encode(), usedforsecurity=False).hexdigest()

    for _ in range(4):
        assert client.get("/v1/models", headers=ops).status_code == 200
    assert redis_client.script_exists(take) == [False], "a key without this limit costs no call"

    answers = [client.get("/v1/models", headers=slow) for _ in range(3)]
    answers += [client.post("/embed", json={"inputs": "a"}, headers=slow)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert code_of(answers[2]) == (429, "rate_limited")
    assert "requests_per_second is 2" in answers[2].json()["error"]["message"]
    assert answers[2].headers["retry-after"] == "1"
    assert answers[3].json()["error_type"] == "Overloaded"
    assert redis_client.script_exists(take) == [True]
    assert client.get("/v1/models", headers=ops).status_code == 200


def test_a_key_of_the_environment_has_nothing_of_a_record_of_the_same_name(
    serve: Callable[..., ServedApp], redis_url: str
) -> None:
    before = serve().client
    ops = found(before, redis_url)
    of_record = make_key(before, ops, "ann", limits={"requests_per_second": 0.01, "queued_tokens": 1})
    client = serve(api_keys=KEYS).client
    for _ in range(3):
        assert client.post("/v1/tasks", json={"input": "x" * 400}, headers=ANN).status_code == 202
    theirs = before.get("/v1/key", headers=of_record).json()["owner"]
    assert client.get("/v1/key", headers=ANN).json()["owner"] != theirs


def test_a_flood_costs_redis_nothing_until_the_bucket_has_a_request_again(
    app: ServedApp, redis_client: redis.Redis, redis_url: str
) -> None:
    ops = found(app.client, redis_url)
    key = make_key(app.client, ops, "loud", limits={"requests_per_second": 0.01})
    answers = [app.client.get("/v1/models", headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    owner = app.client.get("/v1/keys/loud", headers=ops).json()["owner"]
    assert redis_client.delete(f"eq:owner:{owner}") == 1  # whoever asked now would be let in

    lines = ["POST /v1/embeddings HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [f"authorization: {key['authorization']}", "content-length: 1000"]
    with socket.create_connection(("127.0.0.1", app.port)) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())  # and nothing of the body
        assert connection.recv(12) == b"HTTP/1.1 429"
    refused = app.client.get("/v1/models", headers=key)
    assert code_of(refused) == (429, "rate_limited")
    assert 90 <= int(refused.headers["retry-after"]) <= 125
    assert app.client.get("/v1/models", headers=ops).status_code == 200

    app.client.post("/v1/keys/loud", json={"limits": {"requests_per_second": 1000}}, headers=ops).raise_for_status()
    assert app.client.get("/v1/models", headers=key).status_code == 200, "another limit counts at once"


def test_tokens_queues_and_jobs_of_a_key(client: httpx.Client, redis_url: str) -> None:
    ops = found(client, redis_url)
    keys = {
        name: make_key(client, ops, name.replace("_", "-"), limits={name: number})
        for name, number in (("tokens_per_minute", 10), ("queued_tokens", 10), ("open_jobs", 1))
    }
    text = "x" * 40  # ten tokens, as they are estimated
    told = {"tokens_per_minute": "rate_limited", "queued_tokens": "key_limit", "open_jobs": "key_limit"}
    for name, key in keys.items():
        first = client.post("/v1/tasks", json={"input": text}, headers=key | {"idempotency-key": "a"})
        again = client.post("/v1/tasks", json={"input": text}, headers=key | {"idempotency-key": "a"})
        assert (first.status_code, again.status_code, again.json()["id"]) == (202, 202, first.json()["id"])
        refused = client.post("/v1/tasks", json={"input": text}, headers=key)
        assert code_of(refused) == (429, told[name]), name
        assert name in refused.json()["error"]["message"]
        assert int(refused.headers["retry-after"]) >= 1
    whole = client.post("/v1/tasks", json={"input": text + text}, headers=keys["tokens_per_minute"])
    assert code_of(whole) == (429, "key_limit")
    assert whole.headers["x-should-retry"] == "false"
    assert "retry-after" not in whole.headers
    assert client.post("/v1/tasks", json={"input": text}, headers=ops).status_code == 202


def test_stored_bytes_take_the_place_of_the_quota(client: httpx.Client, redis_url: str) -> None:
    ops = found(client, redis_url)
    small = make_key(client, ops, "small", limits={"stored_bytes": 100})

    def upload(key: dict[str, str], size: int) -> httpx.Response:
        files = {"file": ("a.txt", b"x" * size)}
        return client.post("/v1/files", files=files, data={"purpose": "user_data"}, headers=key)

    assert upload(small, 90).status_code == 200
    assert code_of(upload(small, 90)) == (403, "quota_exceeded")
    assert upload(ops, 90).status_code == 200


def test_the_headers_are_of_the_limit_that_leaves_least(app: ServedApp, worker: LedgerWorker, redis_url: str) -> None:
    ops = found(app.client, redis_url)
    limits = {"tokens_per_minute": 1000, "requests_per_second": 5}
    key = make_key(app.client, ops, "limited", limits=limits)
    app.process.ledger.frozen_ms = round(time.time() * 1000)  # nothing comes back meanwhile
    with worker.serving():
        answers = [
            app.client.post("/v1/embeddings", json={"input": text * 40}, headers=key).headers for text in ("a", "b")
        ]
        free = app.client.post("/v1/embeddings", json={"input": "c" * 40}, headers=ops).headers
    assert [answer["x-ratelimit-limit-tokens"] for answer in answers] == ["1000", "1000"]
    assert [answer["x-ratelimit-remaining-tokens"] for answer in answers] == ["990", "980"]
    assert [answer["x-ratelimit-reset-tokens"] for answer in answers] == ["1s", "2s"]
    assert {answer["x-ratelimit-limit-requests"] for answer in answers} == {"5"}
    assert [answer["x-ratelimit-remaining-requests"] for answer in answers] == ["4", "3"]
    assert int(free["x-ratelimit-limit-tokens"]) > 1000

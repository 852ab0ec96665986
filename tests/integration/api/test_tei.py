"""The routes of text-embeddings-inference: its bodies, its errors, its defaults."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tasks.item import TextError
from tests.integration.api.ledger_worker import DIMENSION, MAX_TOKENS, LedgerWorker, vector
from tests.integration.api.served import MODEL, ServedApp
from tests.processes import wait_until


def refused(answer: httpx.Response, status: int, kind: str) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error", "error_type"}
    assert body["error_type"] == kind
    message: str = body["error"]
    return message


def test_vectors_are_a_bare_list_in_input_order(client: httpx.Client, worker: LedgerWorker) -> None:
    texts = [f"{i} {'x' * i}" for i in range(70)]  # more than are rendered at once
    worker.truncated.add("one")  # truncated by default, and nothing in the answer says so
    others: dict[str, Any] = {"model": "another", "truncate": None, "parameters": {}, "truncation_direction": "Right"}
    with worker.serving():
        for path in ("/embed", "/embed/", "/"):
            answer = client.post(path, json={"inputs": texts})
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json() == [pytest.approx(vector(text).tolist()) for text in texts]
        # One text is a list of one, and the model is always the server's own.
        one = client.post("/embed", json={"inputs": "one"} | others)
    assert one.json() == [pytest.approx(vector("one").tolist())]


UNUSABLE: list[tuple[dict[str, Any], int, str, str]] = [
    ({}, 422, "Validation", "inputs is missing"),
    ({"inputs": [1, 2]}, 422, "Validation", "inputs[0] holds token numbers"),
    ({"inputs": [[1], [2]]}, 422, "Validation", "inputs[0] holds token numbers"),
    ({"inputs": 7}, 422, "Validation", "inputs "),
    ({"inputs": ["a", None]}, 422, "Validation", "inputs[1] must be a string"),
    ({"inputs": ["a"] * 2049}, 422, "Validation", "inputs has 2,049 texts"),
    ({"inputs": []}, 400, "Empty", "inputs is an empty list"),
    ({"inputs": ["a", ""]}, 400, "Empty", "inputs[1] is an empty string"),
    ({"inputs": "a", "truncate": "yes"}, 422, "Validation", "truncate"),
    ({"inputs": "a", "truncation_direction": "left"}, 422, "Validation", "truncation_direction"),
    ({"inputs": "a", "prompt_name": "nope"}, 422, "Validation", "prompt_name"),
    ({"inputs": "a", "dimensions": DIMENSION + 1}, 422, "Validation", "dimensions"),
]


def test_what_cannot_be_used(client: httpx.Client) -> None:
    for body, status, kind, message in UNUSABLE:
        assert refused(client.post("/embed", json=body), status, kind).startswith(message), body


def test_other_refusals_have_the_same_form(client: httpx.Client, serve: Callable[..., ServedApp]) -> None:
    json = {"content-type": "application/json"}

    refused(client.post("/embed", content=b"{", headers=json), 422, "Validation")
    refused(client.post("/", content=b'{"inputs": "a"}'), 415, "Validation")
    wrong = client.get("/embed")
    refused(wrong, 405, "Validation")
    assert wrong.headers["allow"] == "POST"
    wrong = client.put("/")
    refused(wrong, 405, "Validation")
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    small = serve(max_body_bytes=2000, max_input_bytes=1000).client
    refused(small.post("/embed", json={"inputs": "x" * 3000}), 413, "Validation")


def test_one_failed_text_fails_the_request(client: httpx.Client, worker: LedgerWorker) -> None:
    for code, status, kind in (("input_too_long", 422, "Validation"), ("worker_lost", 424, "Backend")):
        worker.errors[code] = TextError(code, "It cannot be done.")
        with worker.serving():
            answer = client.post("/embed", json={"inputs": ["good", code]})
        assert refused(answer, status, kind) == "inputs[1]: It cannot be done."


def test_what_takes_too_long_is_overload_and_the_retry_joins(client: httpx.Client, worker: LedgerWorker) -> None:
    first = client.post("/embed", json={"inputs": "slow"}, headers={"x-stainless-read-timeout": "0.1"})
    with worker.serving():
        second = client.post("/v1/embeddings", json={"input": "slow"})

    refused(first, 429, "Overloaded")
    assert 1 <= int(first.headers["retry-after"]) <= 5
    assert second.status_code == 200
    assert worker.claims
    assert 'embedq_joined_requests_total{model="test/model"} 1.0' in client.get("/metrics").text


def test_a_full_backlog_is_overload(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> None:
    client = serve(max_backlog_s=0.01).client
    client.post("/v1/tasks", json={"input": ["x" * 400] * 20})

    answer = client.post("/embed", json={"inputs": ["x" * 400] * 20})

    refused(answer, 429, "Overloaded")
    assert 1 <= int(answer.headers["retry-after"]) <= 120


def test_info(client: httpx.Client) -> None:
    body = client.get("/info").json()

    assert body["model_id"] == body["served_model_name"] == MODEL
    assert body["model_dtype"] == "float32"
    assert body["max_input_length"] == MAX_TOKENS
    assert body["max_client_batch_size"] == 2048
    assert body["max_concurrent_requests"] == 1_500_000  # 30 s at 50,000 tokens/s
    assert body["auto_truncate"] is True
    assert "embedding" in body["model_type"]


def test_health_follows_the_worker_and_the_root_does_not(serve: Callable[..., ServedApp], redis_url: str) -> None:
    client = serve().client

    refused(client.get("/health"), 503, "Unhealthy")
    refused(client.get("/info"), 503, "Unhealthy")
    assert client.head("/health").status_code == 503
    for method in ("GET", "HEAD"):
        assert client.request(method, "/").status_code == 200
    with LedgerWorker(redis_url, MODEL) as worker:
        worker.announce()
        wait_until(lambda: client.get("/health").status_code == 200)
        assert client.get("/health/").content == b""

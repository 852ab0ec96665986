"""What the OpenAPI document says of callers and of Redis being away, against what happens."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import httpx
import pytest

from api.answer import errors
from stack.testing import RedisServer
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp

# Well-formed and unknown, so that only the caller or Redis can be at fault.
IDS = {
    "{task_id}": "task_01a1fa18-18cc-7626-bb92-71b2af5733d5",
    "{file_id}": "file-01a1fa1818cc7626bb9271b2af5733d5",
    "{batch_id}": "batch_01a1fa1818cc7626bb9271b2af5733d5",
    "{model_id}": "test/model",
}


def _answers(client: httpx.Client) -> Iterator[tuple[str, dict[str, Any], httpx.Response]]:
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        address = path
        for name, value in IDS.items():
            address = address.replace(name, value)
        for method, operation in methods.items():
            body = {"inputs" if path in errors.PATHS else "input": "a"} if "requestBody" in operation else None
            yield f"{method.upper()} {path}", operation["responses"], client.request(method, address, json=body)


def test_the_routes_that_need_a_key_are_those_with_a_401(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=(("alice", sha256(b"key").hexdigest()),)).client
    told = {"401": set[str](), "other": set[str]()}
    for name, responses, answer in _answers(client):
        refused = answer.status_code == httpx.codes.UNAUTHORIZED
        assert refused == ("401" in responses), name
        told["401" if refused else "other"].add(name)
        if refused:
            assert answer.headers["content-type"] in responses["401"]["content"], name
    assert all(told.values())


def test_without_redis_every_answer_is_described(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url) as served:
        private_redis.kill()
        away = set()
        for name, responses, answer in _answers(served.client):
            assert str(answer.status_code) in responses, f"{name}: {answer.status_code} {answer.text}"
            away |= {name} if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else set()
    assert {"GET /v1/tasks", "GET /v1/tasks/{task_id}", "GET /v1/files/{file_id}", "POST /v1/tasks"} <= away


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("post /v1/embeddings", {"Prefer", "Idempotency-Key"}),
        ("post /v1/tasks", {"Idempotency-Key"}),
        ("post /v1/batches", {"Idempotency-Key"}),
        ("get /v1/tasks/{task_id}", {"Prefer", "If-None-Match"}),
        ("get /v1/tasks/{task_id}/events", {"Last-Event-ID"}),
        ("get /v1/files/{file_id}/content", {"Range"}),
    ],
)
def test_the_headers_that_a_route_reads_are_named(client: httpx.Client, name: str, headers: set[str]) -> None:
    method, path = name.split(" ")
    parameters = client.get("/openapi.json").json()["paths"][path][method]["parameters"]

    assert {parameter["name"] for parameter in parameters if parameter["in"] == "header"} == headers


def test_the_headers_of_an_answer_are_named(client: httpx.Client, worker: LedgerWorker) -> None:
    told = client.get("/openapi.json").json()["paths"]["/v1/embeddings"]["post"]["responses"]
    with worker.serving():
        for prefer, status in (("wait=20", "200"), ("respond-async", "202")):
            answer = client.post("/v1/embeddings", json={"input": "a"}, headers={"prefer": prefer})
            plain = {"date", "server", "content-length", "content-type", "cache-control", "vary"}

            assert str(answer.status_code) == status
            assert set(answer.headers) - plain == {name.lower() for name in told[status]["headers"]}


def test_the_document_is_made_before_anybody_asks(app: ServedApp) -> None:
    assert app.app.openapi_schema is not None

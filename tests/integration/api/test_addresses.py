"""Requests that are served though their path or method is not quite a route's: slashes at the start, HEAD, OPTIONS."""

import httpx
import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp


@pytest.mark.parametrize("path", ["//v1/embeddings", "///v1/embeddings", "//embeddings", "//embed"])
def test_slashes_at_the_start_count_as_one(app: ServedApp, worker: LedgerWorker, path: str) -> None:
    address = f"http://127.0.0.1:{app.port}{path}"
    with worker.serving():
        answer = app.client.post(address, json={"input": "one", "inputs": "one"})

    assert answer.status_code == 200
    assert answer.request.url.raw_path.decode() == path


@pytest.mark.parametrize(
    "path",
    ["/v1/models", "/v1/models/test/model", "/v1/tasks", "/v1/files", "/openapi.json", "/v1/nothing", "/metrics"],
)
def test_head_tells_what_get_does_without_its_body(client: httpx.Client, path: str) -> None:
    body, head = client.get(path), client.head(path)

    assert head.content == b""
    assert head.status_code == body.status_code
    volatile = {"date", "x-request-id"} | ({"content-length"} if path == "/metrics" else set())
    assert {**head.headers, **dict.fromkeys(volatile)} == {**body.headers, **dict.fromkeys(volatile)}


def test_head_of_a_post_route_is_told_so(client: httpx.Client) -> None:
    answer = client.head("/v1/embeddings")

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/", "GET, HEAD, POST"), ("/health/live", "GET, HEAD"), ("/health", "GET, HEAD"), ("/v1/embeddings", "POST")],
)
def test_options_tells_the_methods_of_a_path_as_haproxy_asks_for_health(
    client: httpx.Client, path: str, methods: str
) -> None:
    answer = client.options(path)

    assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", methods)
    assert client.options("/v1/nothing").status_code == 404

"""A shortcut answers as the framework's own way does, whatever is asked."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ServedApp

REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", "/health/live", {}),
    ("HEAD", "/health/live", {}),
    ("GET", "/health/live/", {}),
    ("OPTIONS", "/v1/embeddings", {}),
    ("GET", "/v1/embeddings", {}),
    ("GET", "/v1/models", {}),
    ("GET", "/v1/models/", {}),
    ("DELETE", "/v1/models", {}),
    ("POST", "/v1/embeddings", {"content": b"{", "headers": {"content-type": "application/json"}}),
    ("POST", "/v1/embeddings", {"content": b"{}"}),
    ("POST", "/v1/tasks", {"json": {"input": [""]}}),
    ("POST", "/v1/tasks/", {"json": {"inptu": ["x"]}}),
    ("POST", "/v1/tasks?x=1", {"json": {"input": 5}}),
    ("GET", "/v1/nothing", {}),
    ("GET", "/", {}),
    ("HEAD", "/", {}),
    ("PUT", "/", {}),
    ("POST", "/", {"json": {"inputs": []}}),
    ("POST", "/embed/", {"json": {"inputs": [7]}}),
    ("GET", "/embed", {}),
    ("GET", "/health", {}),
    ("GET", "/info", {}),
)
VOLATILE = {"date", "x-request-id"}


def _answers(client: httpx.Client) -> list[tuple[int, bytes, dict[str, str]]]:
    found = []
    for method, path, more in REQUESTS:
        answer = client.request(method, path, **more)
        headers = {name: value for name, value in answer.headers.items() if name not in VOLATILE}
        assert answer.headers["x-request-id"], f"{method} {path}"
        found.append((answer.status_code, answer.content, headers))
    return found


def _counted(client: httpx.Client) -> set[str]:
    lines = client.get("/metrics").text.splitlines()
    return {line.rsplit(" ", 1)[0] for line in lines if line.startswith("embedq_http_requests_total")}


def test_with_and_without_shortcuts_every_answer_is_the_same(
    worker: LedgerWorker, serve: Callable[..., ServedApp]
) -> None:
    short, long = serve(), serve()
    assert short.app.shortcuts
    long.app.shortcuts = {}
    for (method, path, _), left, right in zip(REQUESTS, _answers(short.client), _answers(long.client), strict=True):
        assert left == right, f"{method} {path}"
    assert _counted(short.client) - _counted(long.client) == set()

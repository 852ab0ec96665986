"""API keys: who may call, and whose tasks are whose."""

from collections.abc import Callable
from hashlib import sha256

import httpx
import pytest

from tests.integration.api.conformance import operations
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, ServedApp


@pytest.fixture
def guarded(worker: LedgerWorker, serve: Callable[..., ServedApp]) -> httpx.Client:
    return serve(api_keys=KEYS).client


def test_a_known_key_is_let_in(guarded: httpx.Client) -> None:
    for headers in [
        ANN,
        {"authorization": "bearer key of bob"},
        {"api-key": "key of ann"},
        {"x-api-key": "key of bob"},
    ]:
        assert guarded.get("/v1/models", headers=headers).status_code == 200, headers


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/models"), ("POST", "/v1/tasks"), ("POST", "/v1/embeddings"), ("GET", "/v1/tasks/task_x")],
)
def test_nobody_else_is(guarded: httpx.Client, method: str, path: str) -> None:
    for headers in [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic a2V5"}, {"x-api-key": ""}]:
        answer = guarded.request(method, path, headers=headers)

        assert answer.status_code == 401, headers
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


def test_whoever_has_no_key_is_shown_nothing_but_these(client: httpx.Client) -> None:
    """A new route is public only if this list says so too."""
    document = client.get("/openapi.json").json()
    assert {operation.name for operation in operations(document) if not operation.scopes} == {
        "GET /",
        "GET /health",
        "GET /health/live",
        "GET /health/ready",
        "GET /metrics",
    }


def test_probes_need_no_key(guarded: httpx.Client) -> None:
    for path in ["/health/live", "/health/ready", "/metrics"]:
        assert guarded.get(path).status_code == 200, path


def test_a_task_of_somebody_else_does_not_exist(guarded: httpx.Client) -> None:
    location = guarded.post("/v1/tasks", json={"input": "x"}, headers=ANN).headers["location"]

    for method, path in [("GET", ""), ("GET", "/result"), ("POST", "/cancel"), ("DELETE", "")]:
        stranger = guarded.request(method, location + path, headers=BOB)
        assert stranger.status_code == 404, (method, path)
        assert stranger.json()["error"]["code"] == "task_not_found"
    assert guarded.get(location, headers=ANN).json()["status"] == "queued"


def test_idempotency_keys_belong_to_their_owner(guarded: httpx.Client) -> None:
    key = {"idempotency-key": "1"}
    ids = {guarded.post("/v1/tasks", json={"input": "x"}, headers=who | key).json()["id"] for who in (ANN, BOB, ANN)}

    assert len(ids) == 2


def test_without_keys_a_sent_one_is_not_looked_at(client: httpx.Client) -> None:
    assert client.get("/v1/models", headers={"authorization": "Bearer anything"}).status_code == 200


def test_wrong_keys_are_counted_in_the_log_and_never_shown(
    serve: Callable[..., ServedApp], caplog: pytest.LogCaptureFixture
) -> None:
    app = serve(api_keys=f"alice:{sha256(b'right').hexdigest()}")
    for number in range(5):
        assert app.client.get("/v1/models", headers={"x-api-key": f"guess-{number}"}).status_code == 401

    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "requests without a known API key: 1 x from 127.0.0.1"

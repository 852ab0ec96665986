"""Models, probes, metrics, what `GET /v1/service` tells, and what every response carries."""

import time
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, beat, loading, stop
from tests.integration.api.file_uploads import problem
from tests.integration.api.ledger_worker import DIMENSION, MAX_TOKENS, LedgerWorker
from tests.integration.api.served import ANN, BOB, MANAGED_KEYS, MODEL, Serve, ServedApp, code_of
from tests.ledger_builders import a_worker
from tests.processes import wait_until

OTHER_PATHS = (
    "/v1/models/%0A", "/v1/models%0A", f"/v1/models/{MODEL}%0A", f"/v1/models/{MODEL}%20", f"/v1/models/{MODEL}//",
    "/v1/models//", "/v1//models", "/v1/models%2F%2F", "/v1/models%20", "/v1/tasks%0A", "/health%0A",
    "/v1/tasks/%0A", "/%0A", "/openapi.json%0A", "/v1/models/nobody/knows",
)  # fmt: skip


def model_of(client: httpx.Client, who: dict[str, str] | None = None) -> Any:
    """What the service tells of its own model."""
    return client.get("/v1/service", headers=who).json()["models"][0]


def test_the_list_of_models_and_one_with_a_slash_in_its_name(client: httpx.Client) -> None:
    for path in ("/v1/models", "/v1/models/", "/models", "/models/"):
        body = client.get(path).json()
        assert (body["object"], [model["id"] for model in body["data"]]) == ("list", [MODEL])
    # A Redis that is slow for a moment is not waited for: the API tells what it knows without it.
    wait_until(lambda: client.get(f"/v1/models/{MODEL}").json()["workers"], message="the model's worker is known")
    expected = {"id": MODEL, "object": "model", "created": 1_700_000_000, "dimension": DIMENSION, "workers": 1}
    for path in (MODEL, f"{MODEL}/", MODEL.replace("/", "%2F")):
        model = client.get(f"/v1/models/{path}").json()
        assert model["owned_by"]
        assert model == model | expected
    for path in OTHER_PATHS:
        assert client.get(path).status_code == 404, path
    assert code_of(client.get("/v1/models/nobody/knows")) == (404, "model_not_found")


def test_a_model_under_several_names(serve: Serve, worker: LedgerWorker, redis_url: str) -> None:
    client = serve(served_name=f"{MODEL},text-embedding-3-small").client
    with LedgerWorker(redis_url, "other/model", aliases=("other",)) as other, worker.serving():
        other.announce()
        wait_until(lambda: client.get("/v1/models/other").status_code == 200)
        models = {model["id"]: model for model in client.get("/v1/models").json()["data"]}
        answer = client.post("/v1/embeddings", json={"input": "one", "model": "text-embedding-3-small"})
        queued = client.post("/v1/tasks", json={"input": "one", "model": "other"})
    assert list(models) == [MODEL, "text-embedding-3-small", "other/model", "other"]
    assert [model["alias_of"] for model in models.values()] == [None, MODEL, None, "other/model"]
    assert models["text-embedding-3-small"] | {"id": MODEL, "alias_of": None} == models[MODEL]
    assert (answer.json()["model"], queued.json()["model"]) == (MODEL, "other/model")


def test_a_model_that_appears_while_the_server_runs_is_learnt(serve: Serve, redis_url: str, ledger: Ledger) -> None:
    client = serve(served_name=f"{MODEL},other-name").client

    # The configured one is known before any worker, and nothing is known of it.
    assert client.get(f"/v1/models/{MODEL}").json()["dimension"] is None
    new = model_of(client)
    assert (new["names"], new["dimension"], new["workers"]) == ([MODEL, "other-name"], None, [])
    assert client.post("/v1/tasks", json={"input": "x" * 40, "dimensions": 3}).status_code == 202
    told = {"tasks": 1, "tokens": 10, "seconds": None}
    wait_until(lambda: told.items() <= model_of(client)["lanes"]["online"].items())
    with LedgerWorker(redis_url, "late/model") as late:
        late.announce()
        wait_until(lambda: client.get("/v1/models/late/model").status_code == 200)
        assert client.post("/v1/tasks", json={"input": "x", "model": "late/model"}).json()["model"] == "late/model"
        ledger.run(stop("late/model", late.id))

    # A worker that loads is told by ready, the service, and a call that waits.
    ledger.run(loading(MODEL, LoadingWorker("w:1", "org/model", "huggingface.co", since=time.time()), 60_000))
    wait_until(lambda: "loads" in client.get("/health/ready").text, message="that it is seen")
    ready = client.get("/health/ready")
    assert ready.status_code == 503
    assert ready.json()["error"]["message"].startswith("A worker loads org/model from huggingface.co, for ")
    assert [(one["model"], one["source"]) for one in model_of(client)["loading"]] == [("org/model", "huggingface.co")]
    waited = client.post("/v1/embeddings", json={"input": "x"}, headers={"x-stainless-read-timeout": "0.1"})
    assert waited.status_code in {503, 504}
    assert "A worker loads org/model" in waited.json()["error"]["message"]


# ---- probes, and what every response carries -------------------------------------------------------------------------


def test_probes_follow_the_worker_and_live_and_the_root_do_not(serve: Serve, redis_url: str) -> None:
    client = serve(storage_url=f"memory://{uuid4().hex}").client
    assert client.get("/health/live").json() == client.get("/health/live/").json() == {"status": "live"}
    assert client.get("/").status_code == client.head("/").status_code == 200
    before = client.get("/health/ready")
    problem(before, 503, "not_ready", "worker")
    assert before.json()["error"]["type"] == "service_unavailable_error"
    for path in ("/health", "/info"):
        of_tei = client.get(path)
        assert (of_tei.status_code, of_tei.json()["error_type"]) == (503, "Unhealthy")
    assert client.head("/health").status_code == client.head("/health/ready").status_code == 503
    with LedgerWorker(redis_url, MODEL) as worker:
        worker.announce()
        after = client.get("/health/ready/").json()
        wait_until(lambda: client.get("/health").status_code == 200)
        assert client.get("/health/").content == b""
        info = wait_until(lambda: answer.json() if (answer := client.get("/info")).is_success else None)
    assert after == {"status": "ready", "redis": "up", "workers": {MODEL: 1}, "storage": None}
    assert info["model_id"] == info["served_model_name"] == MODEL
    assert (info["max_input_length"], info["max_client_batch_size"]) == (MAX_TOKENS, 2048)
    assert info["max_concurrent_requests"] == 1_500_000  # 30 s at 50,000 tokens/s


def test_a_sane_request_id_is_kept_and_a_defect_is_a_500_without_its_message(
    client: httpx.Client, worker: LedgerWorker, caplog: pytest.LogCaptureFixture
) -> None:
    paths = ["/health/live", "/health/ready", "/metrics", "/v1/models", "/nothing", "/openapi.json"]
    assert len({client.get(path).headers["x-request-id"] for path in paths}) == len(paths)
    for sent, kept in (("abc-1.2:3_4", True), ("two words", False), ("x" * 129, False)):
        answer = client.get("/health/live", headers={"x-request-id": sent})
        assert (answer.headers["x-request-id"] == sent) is kept

    task_id = "task_01a1fa1818cc7626bb9271b2af5733d5"
    worker.ledger.client.set(f"eq:task:{task_id}", "not a hash", ex=60)
    answer = client.get(f"/v1/tasks/{task_id}", headers={"x-request-id": "r-1"})
    assert code_of(answer) == (500, "internal_error")
    assert answer.headers["x-request-id"] == "r-1"
    assert "WRONGTYPE" not in answer.text
    (line,) = [record.getMessage() for record in caplog.records if record.name == "api.middleware"]
    assert line.startswith("request r-1 failed: ")
    assert "services/tasks.py:" in line, "it names a place of ours, not only where a library raised"
    assert "WRONGTYPE" not in line
    worker.ledger.client.delete(f"eq:task:{task_id}")


def test_paths_and_methods_that_are_not_quite_a_routes(app: ServedApp, worker: LedgerWorker) -> None:
    client = app.client
    with worker.serving():  # slashes at the start count as one
        for path in ("//v1/embeddings", "///v1/embeddings", "/embeddings", "//embeddings/", "//embed"):
            answer = client.post(f"http://127.0.0.1:{app.port}{path}", json={"input": "one", "inputs": "one"})
            assert (answer.status_code, answer.request.url.raw_path.decode()) == (200, path)
    for path in ("/v1/models", "/v1/tasks", "/v1/files", "/openapi.json", "/v1/nothing", "/metrics"):
        body, head = client.get(path), client.head(path)
        assert (head.content, head.status_code) == (b"", body.status_code)
        volatile = {"date", "x-request-id"} | ({"content-length"} if path == "/metrics" else set())
        assert {**head.headers, **dict.fromkeys(volatile)} == {**body.headers, **dict.fromkeys(volatile)}
    answer = client.head("/v1/embeddings")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    # As HAProxy asks for health.
    methods = {"/": "GET, HEAD, POST", "/health/live": "GET, HEAD", "/health": "GET, HEAD", "/v1/embeddings": "POST"}
    for path, allowed in methods.items():
        answer = client.options(path)
        assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", allowed)
    assert client.options("/v1/nothing").status_code == 404


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_tell_the_signals_of_each_lane_and_errors_by_their_code(serve: Serve, worker: LedgerWorker) -> None:
    app = serve(max_backlog_s=0.01, max_backlog_bulk_s=1000)
    client = app.client
    for lane, texts in (("bulk", ["x" * 400] * 20), ("online", ["x" * 400] * 20), ("online", ["y" * 400] * 20)):
        client.post("/v1/tasks", json={"input": texts, "lane": lane})
    client.post("/embed", json={"inputs": ""})
    for path in ("/v1/tasks/task_x", "/nothing", "/v1/models%0A"):
        client.get(path)
    waiting: list[tuple[str, dict[str, str], float]] = [
        ("backlog_tasks", {"model": MODEL}, 2),
        ("backlog_seconds", {"model": MODEL, "lane": "bulk"}, 0.04),  # 2,000 tokens at 50,000 a second
        ("backlog_limit_seconds", {"lane": "online"}, 0.01),
        ("refused_tasks_total", {"model": MODEL, "lane": "online", "code": "backlog_full"}, 1),
        ("retry_after_seconds_count", {"code": "backlog_full"}, 1),
        ("http_requests_total", {"method": "POST", "route": "/v1/tasks", "status": "202"}, 2),
        ("http_errors_total", {"route": "/v1/tasks", "code": "backlog_full"}, 1),
        ("http_errors_total", {"route": "/embed", "code": "empty_input"}, 1),
        ("http_errors_total", {"route": "/v1/tasks/{task_id}", "code": "task_not_found"}, 1),
        ("http_errors_total", {"route": "unmatched", "code": "route_not_found"}, 2),
        ("submitted_items_total", {"lane": "online", "model": MODEL}, 20),
        ("workers", {"model": MODEL}, 1),
    ]
    done: list[tuple[str, dict[str, str], float]] = [
        ("ledger_committed_items_total", {"model": MODEL}, 40),
        ("ended_items_total", {"lane": "bulk", "outcome": "completed"}, 20),
        ("task_seconds_count", {"model": MODEL, "lane": "online"}, 1),
        ("ended_tasks_total", {"lane": "bulk", "state": "completed"}, 1),
        ("oldest_waiting_seconds", {"model": MODEL, "lane": "bulk"}, 0),
    ]
    for expected in (waiting, done):
        for name, labels, value in expected:
            wait_until(lambda: app.series(f"embedq_{name}", **labels) == value, message=name)  # noqa: B023
        wait_until(lambda: app.series("embedq_bells_total"), message="no bell")
        with worker.serving():
            wait_until(lambda: app.series("embedq_ended_tasks_total") == 2, message="the end of both")
    app.process.metrics.fresh_s = 1000  # they are made once in a while, however often they are read
    first = client.get("/metrics").content
    client.get("/v1/models")
    assert client.get("/metrics").content == first


# ---- the service -----------------------------------------------------------------------------------------------------


def test_the_service_tells_models_with_their_workers_and_lanes(client: httpx.Client, worker: LedgerWorker) -> None:
    client.post("/v1/tasks", json={"input": "x" * 400})
    client.post("/v1/tasks", json={"input": ["y" * 400] * 50, "lane": "bulk"})
    wait_until(lambda: model_of(client)["lanes"]["bulk"]["tasks"])
    body, seen = client.get("/v1/service").json(), model_of(client)
    assert body["version"] == client.get("/openapi.json").json()["info"]["version"]
    assert body["started_at"] <= body["redis"]["seen_at"] <= body["time"] <= time.time()
    assert body["documents"] == {"workers": [], "tasks": 0, "absent_since": None}
    of_model = {"id": MODEL, "names": [MODEL], "dimension": DIMENSION, "max_tokens": MAX_TOKENS, "device": "cpu"}
    assert seen == seen | of_model | {"compute": "fake", "precision": "float32", "tokens_per_second": 50_000}
    for lane, tokens, seconds in (("online", 100, 0.002), ("bulk", 5000, 0.1)):
        assert seen["lanes"][lane] == seen["lanes"][lane] | {"tasks": 1, "tokens": tokens, "seconds": seconds}
    (shown,) = seen["workers"]
    assert shown == shown | {"id": worker.id, "pid": 1, "host": "here", "rss_bytes": 1, "items": 4, "deaths": 0}

    dead = a_worker(worker.id, deaths=3, died_at=1_795_198_568.5, died_of="signal 9, SIGKILL")
    worker.ledger.run(beat(MODEL, dead, None, 60_000))
    died = wait_until(lambda: [one["died_of"] for one in model_of(client)["workers"] if one["deaths"] == 3])
    assert died == ["signal 9, SIGKILL"]
    worker.ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: not model_of(client)["workers"])
    assert model_of(client)["absent_since"] <= time.time()


def test_a_tenant_sees_its_own_work_and_the_load(serve: Serve, worker: LedgerWorker) -> None:
    client = serve(api_keys=MANAGED_KEYS).client
    client.post("/v1/tasks", json={"input": "x" * 400}, headers=ANN)
    client.post("/v1/tasks", json={"input": "y" * 40}, headers=BOB)

    wait_until(lambda: model_of(client, ANN)["lanes"]["online"]["tasks"] == 2)
    of_all, of_bob = model_of(client, ANN), model_of(client, BOB)
    online = [[one["lanes"]["online"][name] for name in ("tasks", "tokens", "seconds")] for one in (of_all, of_bob)]
    assert online == [[2, 110, 0.0022], [1, 10, 0.0022]]
    places = [[(one["host"], one["pid"], one["rss_bytes"]) for one in found["workers"]] for found in (of_all, of_bob)]
    assert places == [[("here", 1, 1)], [(None, None, None)]]
    assert of_all["workers"][0]["id"] == worker.id != of_bob["workers"][0]["id"]
    assert code_of(client.get("/v1/service/redis", headers=BOB)) == (403, "scope_missing")
    assert client.get("/v1/service/redis", headers=ANN).status_code == 200

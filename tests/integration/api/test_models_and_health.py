"""Models, probes, metrics, what `GET /v1/service` tells, and what every response carries."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis

from api.app import create_app
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, beat, loading, stop
from tests.integration.api.ledger_worker import DIMENSION, MAX_TOKENS, LedgerWorker
from tests.integration.api.served import ANN, BOB, MANAGED_KEYS, MODEL, ServedApp, code_of
from tests.ledger_builders import a_worker
from tests.processes import RedisServer, wait_until
from worker_config.settings import load_settings

OTHER_PATHS = (
    "/v1/models/%0A", "/v1/models%0A", f"/v1/models/{MODEL}%0A", f"/v1/models/{MODEL}%20", f"/v1/models/{MODEL}//",
    "/v1/models//", "/v1//models", "/v1/models%2F%2F", "/v1/models%20", "/v1/tasks%0A", "/health%0A",
    "/v1/tasks/%0A", "/%0A", "/openapi.json%0A", "/v1/models/nobody/knows",
)  # fmt: skip


def test_the_list_of_models(client: httpx.Client) -> None:
    for path in ("/v1/models", "/v1/models/", "/models", "/models/"):
        body = client.get(path).json()
        assert (body["object"], [model["id"] for model in body["data"]]) == ("list", [MODEL])


def test_one_model_with_a_slash_in_its_name(client: httpx.Client) -> None:
    # A Redis that is slow for a moment is not waited for: the API tells what it knows without it.
    wait_until(lambda: client.get(f"/v1/models/{MODEL}").json()["workers"], message="the model's worker is known")
    encoded = MODEL.replace("/", "%2F")
    for path in (f"/v1/models/{MODEL}", f"/v1/models/{MODEL}/", f"/models/{MODEL}", f"/v1/models/{encoded}"):
        model = client.get(path).json()
        assert model["owned_by"]
        assert model == model | {
            "id": MODEL,
            "object": "model",
            "created": 1_700_000_000,
            "dimension": DIMENSION,
            "workers": 1,
        }
    for path in OTHER_PATHS:
        assert client.get(path).status_code == 404, path
    assert code_of(client.get("/v1/models/nobody/knows")) == (404, "model_not_found")


def test_a_model_under_several_names(serve: Callable[..., ServedApp], worker: LedgerWorker, redis_url: str) -> None:
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
    assert answer.json()["model"] == MODEL
    assert queued.json()["model"] == "other/model"


def test_a_model_that_appears_while_the_server_runs_is_learnt(serve: Callable[..., ServedApp], redis_url: str) -> None:
    client = serve(served_name=f"{MODEL},other-name").client
    # The configured one is known before any worker, and nothing is known of it.
    assert client.get(f"/v1/models/{MODEL}").json()["dimension"] is None
    [model] = client.get("/v1/service").json()["models"]
    assert model == {
        **dict.fromkeys(("dimension", "max_tokens", "device", "compute", "precision", "tokens_per_second")),
        "id": MODEL,
        "names": [MODEL, "other-name"],
        "workers": [],
        "loading": [],
        "leases": 0,
        "lanes": {lane: {"tasks": 0, "tokens": 0, "seconds": 0.0, "oldest_s": None} for lane in ("online", "bulk")},
        "absent_since": None,
    }
    assert client.post("/v1/tasks", json={"input": "x" * 40, "dimensions": 3}).status_code == 202
    told = {"tasks": 1, "tokens": 10, "seconds": None}
    wait_until(lambda: told.items() <= client.get("/v1/service").json()["models"][0]["lanes"]["online"].items())

    with LedgerWorker(redis_url, "late/model") as late:
        late.announce()
        wait_until(lambda: client.get("/v1/models/late/model").status_code == 200)
        answer = client.post("/v1/tasks", json={"input": "x", "model": "late/model"})
    assert answer.json()["model"] == "late/model"


def test_a_worker_that_loads_is_told_by_ready_the_service_and_a_call_that_waits(
    serve: Callable[..., ServedApp], ledger: Ledger
) -> None:
    client = serve().client
    ledger.run(loading(MODEL, LoadingWorker("w:1", "org/model", "huggingface.co", since=time.time()), 60_000))
    ready = wait_until(
        lambda: answer if "loads" in (answer := client.get("/health/ready")).text else None, message="that it is seen"
    )
    assert ready.status_code == 503
    assert ready.json()["error"]["message"].startswith("A worker loads org/model from huggingface.co, for ")
    [model] = client.get("/v1/service").json()["models"]
    assert [(one["model"], one["source"]) for one in model["loading"]] == [("org/model", "huggingface.co")]
    waited = client.post("/v1/embeddings", json={"input": "x"}, headers={"x-stainless-read-timeout": "0.1"})
    assert waited.status_code in {503, 504}
    assert "A worker loads org/model" in waited.json()["error"]["message"]


# ---- probes ----------------------------------------------------------------------------------------------------------


def test_ready_once_a_worker_beats(serve: Callable[..., ServedApp], redis_url: str) -> None:
    client = serve(storage_url=f"memory://{uuid4().hex}").client
    before = client.get("/health/ready")
    with LedgerWorker(redis_url, MODEL) as worker:
        worker.announce()
        after = client.get("/health/ready")

    assert before.status_code == 503
    assert before.json()["error"] | {"message": ""} == {
        "message": "",
        "type": "service_unavailable_error",
        "param": "worker",
        "code": "not_ready",
    }
    assert after.json() == {"status": "ready", "redis": "up", "workers": {MODEL: 1}, "storage": None}


async def test_all_who_ask_at_a_time_share_one_look(
    redis_url: str, worker: LedgerWorker, redis_client: redis.Redis
) -> None:
    settings = load_settings(redis_url=redis_url, served_name=MODEL, storage_url=f"memory://{uuid4().hex}")
    parts = create_app(settings).state
    service = parts.service
    await service.ready()
    redis_client.config_resetstat()

    answers = await asyncio.gather(*(service.ready() for _ in range(50)))
    looks = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    await parts.ledger.close()

    assert {answer.workers[MODEL] for answer in answers} == {1}
    assert looks <= 3, "one at the ledger, and what one look at the storage asks"


def test_live(client: httpx.Client) -> None:
    assert client.get("/health/live").json() == client.get("/health/live/").json() == {"status": "live"}
    ready = client.get("/health/ready").status_code
    assert client.head("/health/ready").status_code == client.get("/health/ready/").status_code == ready


def test_a_sane_request_id_is_kept(client: httpx.Client) -> None:
    paths = ["/health/live", "/health/ready", "/metrics", "/v1/models", "/nothing", "/openapi.json"]
    assert len({client.get(path).headers["x-request-id"] for path in paths}) == len(paths)
    for sent, kept in (("abc-1.2:3_4", True), ("two words", False), ("x" * 129, False)):
        answer = client.get("/health/live", headers={"x-request-id": sent})
        assert (answer.headers["x-request-id"] == sent) is kept


def test_a_defect_is_a_500_without_its_message(
    client: httpx.Client, worker: LedgerWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.ledger.client.set("eq:task:task_01a1fa1818cc7626bb9271b2af5733d5", "not a hash")
    answer = client.get("/v1/tasks/task_01a1fa1818cc7626bb9271b2af5733d5", headers={"x-request-id": "r-1"})
    worker.ledger.client.delete("eq:task:task_01a1fa1818cc7626bb9271b2af5733d5")

    assert code_of(answer) == (500, "internal_error")
    assert answer.headers["x-request-id"] == "r-1"
    assert "WRONGTYPE" not in answer.text
    (line,) = [record.getMessage() for record in caplog.records if record.name == "api.middleware"]
    assert line.startswith("request r-1 failed: ")
    assert "services/tasks.py:" in line, "it names a place of ours, not only where a library raised"
    assert "WRONGTYPE" not in line


# ---- metrics ---------------------------------------------------------------------------------------------------------


def test_metrics_count_requests_tasks_and_bells(app: ServedApp, client: httpx.Client, worker: LedgerWorker) -> None:
    client.post("/v1/tasks", json={"input": ["a", "b"]})
    with worker.serving():
        client.post("/v1/embeddings", json={"input": "c"})
    client.get("/v1/tasks/task_x")
    counted = (f'embedq_ledger_committed_items_total{{model="{MODEL}"}} 3.0', f'embedq_bells_total{{model="{MODEL}"}}')
    wait_until(lambda: all(some in client.get("/metrics").text for some in counted), message="all counts")

    text = client.get("/metrics").text

    assert 'embedq_http_requests_total{method="POST",route="/v1/tasks",status="202"} 1.0' in text
    assert 'embedq_http_requests_total{method="GET",route="/v1/tasks/{task_id}",status="404"} 1.0' in text
    assert f'embedq_submitted_items_total{{lane="online",model="{MODEL}"}} 3.0' in text
    assert f'embedq_workers{{model="{MODEL}"}} 1.0' in text
    for name in ("embedq_redis_up 1.0", "embedq_loop_stall_max_seconds ", "process_resident_memory_bytes"):
        assert name in text
    app.process.metrics.fresh_s = 1000  # they are made once in a while, however often they are read
    first = client.get("/metrics").content
    client.get("/v1/models")
    assert client.get("/metrics").content == first


def test_metrics_tell_the_signals_of_each_lane(serve: Callable[..., ServedApp], worker: LedgerWorker) -> None:
    app = serve(max_backlog_s=0.01, max_backlog_bulk_s=1000)
    for lane, texts in (("bulk", ["x" * 400] * 20), ("online", ["x" * 400] * 20), ("online", ["y" * 400] * 20)):
        app.client.post("/v1/tasks", json={"input": texts, "lane": lane})
    wait_until(lambda: app.series("embedq_backlog_tasks", model=MODEL) == 2)
    wait_until(lambda: app.series("embedq_oldest_waiting_seconds", lane="bulk"))

    waiting = {lane: app.series("embedq_backlog_seconds", model=MODEL, lane=lane) for lane in ("online", "bulk")}
    with worker.serving():
        wait_until(lambda: app.series("embedq_ended_items_total", lane="online", outcome="completed") == 20)
        wait_until(lambda: app.series("embedq_ended_items_total", lane="bulk", outcome="completed") == 20)

    assert waiting == {"online": 0.04, "bulk": 0.04}, "2,000 tokens at 50,000 a second"
    expected: list[tuple[str, dict[str, str], float]] = [
        ("embedq_backlog_limit_seconds", {"lane": "online"}, 0.01),
        ("embedq_refused_tasks_total", {"model": MODEL, "lane": "online", "code": "backlog_full"}, 1),
        ("embedq_http_errors_total", {"route": "/v1/tasks", "code": "backlog_full"}, 1),
        ("embedq_retry_after_seconds_count", {"code": "backlog_full"}, 1),
        ("embedq_task_seconds_count", {"model": MODEL, "lane": "online"}, 1),
        ("embedq_task_seconds_bucket", {"lane": "bulk", "le": "+Inf"}, 1),
        ("embedq_ended_tasks_total", {"lane": "bulk", "state": "completed"}, 1),
        ("embedq_oldest_waiting_seconds", {"model": MODEL, "lane": "bulk"}, 0),
    ]
    for name, labels, value in expected:
        assert app.series(name, **labels) == value, name
    assert app.series("embedq_redis_used_bytes") > 0


def test_metrics_count_errors_by_their_code(app: ServedApp) -> None:
    app.client.post("/v1/embeddings", json={"input": ""})
    app.client.post("/embed", json={"inputs": ""})
    app.client.get("/v1/tasks/task_x")
    app.client.get("/nothing")
    app.client.get("/v1/models%0A")

    codes = {("/v1/embeddings", "empty_input"), ("/embed", "empty_input"), ("/v1/tasks/{task_id}", "task_not_found")}
    assert [app.series("embedq_http_errors_total", route=route, code=code) for route, code in codes] == [1, 1, 1]
    assert app.series("embedq_http_errors_total", route="unmatched", code="route_not_found") == 2


# ---- the service -----------------------------------------------------------------------------------------------------


def test_the_service_tells_models_with_their_workers_and_lanes(client: httpx.Client, worker: LedgerWorker) -> None:
    client.post("/v1/tasks", json={"input": "x" * 400})
    client.post("/v1/tasks", json={"input": ["y" * 400] * 50, "lane": "bulk"})
    wait_until(lambda: client.get("/v1/service").json()["models"][0]["lanes"]["bulk"]["tasks"])

    body = client.get("/v1/service").json()
    (model,) = body["models"]

    assert body["object"] == "service"
    assert body["version"] == client.get("/openapi.json").json()["info"]["version"]
    assert body["started_at"] <= body["redis"]["seen_at"] <= body["time"] <= time.time()
    assert body["redis"]["up"] is True
    assert body["documents"] == {"workers": [], "tasks": 0, "absent_since": None}
    assert model == model | {
        "id": MODEL, "names": [MODEL], "dimension": DIMENSION, "max_tokens": MAX_TOKENS, "device": "cpu",
        "compute": "fake", "precision": "float32", "tokens_per_second": 50_000, "leases": 0,
        "lanes": {
            lane: {"tasks": 1, "tokens": tokens, "seconds": seconds, "oldest_s": model["lanes"][lane]["oldest_s"]}
            for lane, tokens, seconds in (("online", 100, 0.002), ("bulk", 5000, 0.1))
        },
        "workers": [
            {
                "id": worker.id, "pid": 1, "host": "here", "started_at": 0.0, "rss_bytes": 1, "items": 4,
                "forward_passes": 3, "streams": 1, "tokens_per_second": 50_000.0, "deaths": 0, "died_at": None,
                "died_of": None,
            }
        ],
    }  # fmt: skip


def test_a_tenant_sees_its_own_work_and_the_load(serve: Callable[..., ServedApp], worker: LedgerWorker) -> None:
    client = serve(api_keys=MANAGED_KEYS).client
    client.post("/v1/tasks", json={"input": "x" * 400}, headers=ANN)
    client.post("/v1/tasks", json={"input": "y" * 40}, headers=BOB)

    def model(who: dict[str, str]) -> Any:
        (found,) = client.get("/v1/service", headers=who).json()["models"]
        return found

    wait_until(lambda: model(ANN)["lanes"]["online"]["tasks"] == 2)
    of_all, of_bob = model(ANN), model(BOB)

    online = [[one["lanes"]["online"][name] for name in ("tasks", "tokens", "seconds")] for one in (of_all, of_bob)]
    assert online == [[2, 110, 0.0022], [1, 10, 0.0022]]
    places = [[(one["host"], one["pid"], one["rss_bytes"]) for one in found["workers"]] for found in (of_all, of_bob)]
    assert places == [[("here", 1, 1)], [(None, None, None)]]
    assert of_all["workers"][0]["id"] == worker.id != of_bob["workers"][0]["id"]
    assert code_of(client.get("/v1/service/redis", headers=BOB)) == (403, "scope_missing")
    assert client.get("/v1/service/redis", headers=ANN).status_code == 200


def test_how_full_redis_is_beside_what_is_refused(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url, max_redis_memory_percent=50) as served:
        wait_until(lambda: served.client.get("/v1/service").json()["redis"]["limit_bytes"])
        seen = served.client.get("/v1/service").json()["redis"]
    assert seen["memory_percent"] == 100 * seen["used_bytes"] // seen["limit_bytes"]
    assert (seen["tasks_percent"], seen["queries_percent"]) == (45, 50)


def test_deaths_of_a_worker_and_since_when_nobody_serves(client: httpx.Client, worker: LedgerWorker) -> None:
    dead = a_worker(worker.id, deaths=3, died_at=1_795_198_568.5, died_of="signal 9, SIGKILL")
    worker.ledger.run(beat(MODEL, dead, None, 60_000))

    def model() -> Any:
        return client.get("/v1/service").json()["models"][0]

    wait_until(lambda: [one["deaths"] for one in model()["workers"]] == [3])
    (told,) = model()["workers"]
    assert (told["died_at"], told["died_of"]) == (1_795_198_568.5, "signal 9, SIGKILL")
    worker.ledger.run(stop(MODEL, worker.id))
    wait_until(lambda: not model()["workers"])
    assert model()["absent_since"] <= time.time()


def test_without_redis_it_tells_what_was_last_seen(private_redis: RedisServer) -> None:
    with LedgerWorker(private_redis.url, MODEL) as worker, ServedApp(private_redis.url) as served:
        worker.announce()
        wait_until(lambda: served.client.get("/v1/service").json()["models"][0]["workers"])
        private_redis.kill()
        wait_until(lambda: not served.client.get("/v1/service").json()["redis"]["up"])

        body = served.client.get("/v1/service").json()

    assert body["redis"]["seen_at"] < body["time"]
    assert [model["id"] for model in body["models"]] == [MODEL]
    assert body["models"][0]["workers"]


# ---- paths and methods that are not quite a route's ------------------------------------------------------------------


def test_slashes_at_the_start_count_as_one(app: ServedApp, worker: LedgerWorker) -> None:
    with worker.serving():
        for path in ("//v1/embeddings", "///v1/embeddings", "//embeddings", "//embed"):
            answer = app.client.post(f"http://127.0.0.1:{app.port}{path}", json={"input": "one", "inputs": "one"})
            assert (answer.status_code, answer.request.url.raw_path.decode()) == (200, path)


def test_head_tells_what_get_does_without_its_body(client: httpx.Client) -> None:
    paths = [f"/v1/models/{MODEL}", "/v1/tasks", "/v1/files", "/openapi.json", "/v1/nothing", "/metrics"]
    for path in ["/v1/models", *paths]:
        body, head = client.get(path), client.head(path)
        assert (head.content, head.status_code) == (b"", body.status_code)
        volatile = {"date", "x-request-id"} | ({"content-length"} if path == "/metrics" else set())
        assert {**head.headers, **dict.fromkeys(volatile)} == {**body.headers, **dict.fromkeys(volatile)}
    answer = client.head("/v1/embeddings")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


def test_options_tells_the_methods_of_a_path_as_haproxy_asks_for_health(client: httpx.Client) -> None:
    get = "GET, HEAD"
    paths = {"/": f"{get}, POST", "/health/live": get, "/health": get, "/v1/embeddings": "POST"}
    for path, methods in paths.items():
        answer = client.options(path)
        assert (answer.status_code, answer.content, answer.headers["allow"]) == (204, b"", methods)
    assert client.options("/v1/nothing").status_code == 404

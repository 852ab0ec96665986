"""Models, probes, metrics, and what every response carries."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from uuid import uuid4

import httpx
import pytest
import redis

from api.app import create_app
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import LoadingWorker, loading
from tests.integration.api.ledger_worker import DIMENSION, LedgerWorker
from tests.integration.api.served import MODEL, ServedApp
from tests.processes import wait_until
from worker_config.settings import load_settings


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/", "/models", "/models/"])
def test_the_list_of_models(client: httpx.Client, path: str) -> None:
    body = client.get(path).json()

    assert body["object"] == "list"
    assert [model["id"] for model in body["data"]] == [MODEL]


@pytest.mark.parametrize("path", [f"/v1/models/{MODEL}", f"/v1/models/{MODEL}/", f"/models/{MODEL}"])
def test_one_model_with_a_slash_in_its_name(client: httpx.Client, path: str) -> None:
    # A Redis that is slow for a moment is not waited for: the API tells what it knows without it.
    wait_until(lambda: client.get(path).json()["workers"], message="the model's worker is known")
    model = client.get(path).json()

    assert model["id"] == MODEL
    assert model["object"] == "model"
    assert model["created"] == 1_700_000_000
    assert model["owned_by"]
    assert model["dimension"] == DIMENSION
    assert model["workers"] == 1


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


def test_an_unknown_model(client: httpx.Client) -> None:
    answer = client.get("/v1/models/nobody/knows")

    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models/%0A", "/v1/models%0A", f"/v1/models/{MODEL}%0A", f"/v1/models/{MODEL}%20", f"/v1/models/{MODEL}//",
        "/v1/models//", "/v1//models", "/v1/models%2F%2F", "/v1/models%20", "/v1/tasks%0A", "/health%0A",
        "/v1/tasks/%0A", "/%0A", "/openapi.json%0A",
    ],
)  # fmt: skip
def test_a_path_with_something_more_is_another_path(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_an_encoded_slash_is_a_slash(client: httpx.Client) -> None:
    assert client.get("/v1/models/" + MODEL.replace("/", "%2F")).json()["id"] == MODEL


def test_a_model_that_appears_while_the_server_runs_is_learnt(serve: Callable[..., ServedApp], redis_url: str) -> None:
    client = serve().client
    with LedgerWorker(redis_url, "late/model") as late:
        late.announce()

        wait_until(lambda: client.get("/v1/models/late/model").status_code == 200)
        answer = client.post("/v1/tasks", json={"input": "x", "model": "late/model"})
    assert answer.json()["model"] == "late/model"


def test_the_configured_model_is_known_before_any_worker(serve: Callable[..., ServedApp]) -> None:
    client = serve().client

    assert client.get(f"/v1/models/{MODEL}").json()["dimension"] is None
    assert client.post("/v1/tasks", json={"input": "x", "dimensions": 3}).status_code == 202


def test_a_worker_that_loads_is_told_by_ready_the_service_and_a_call_that_waits(
    serve: Callable[..., ServedApp], redis_url: str
) -> None:
    client = serve().client
    notice = LoadingWorker("w:1", "org/model", "huggingface.co", since=time.time())
    with contextlib.closing(Ledger.connect(redis_url)) as ledger:
        ledger.run(loading(MODEL, notice, 60_000))
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


def test_ready_once_a_worker_beats(serve: Callable[..., ServedApp], redis_url: str) -> None:
    client = serve().client
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
    assert client.get("/health/live").json() == {"status": "live"}
    assert client.head("/health/live").status_code == 200
    assert client.get("/health/live/").json() == {"status": "live"}
    ready = client.get("/health/ready").status_code
    assert client.head("/health/ready").status_code == client.get("/health/ready/").status_code == ready


def test_every_response_has_a_request_id(client: httpx.Client) -> None:
    paths = ["/health/live", "/health/ready", "/metrics", "/v1/models", "/nothing", "/openapi.json"]
    ids = [client.get(path).headers["x-request-id"] for path in paths]

    assert len(set(ids)) == len(paths)


@pytest.mark.parametrize(("sent", "kept"), [("abc-1.2:3_4", True), ("two words", False), ("x" * 129, False)])
def test_a_sane_request_id_is_kept(client: httpx.Client, sent: str, kept: bool) -> None:
    answer = client.get("/health/live", headers={"x-request-id": sent})

    assert (answer.headers["x-request-id"] == sent) is kept


def test_metrics_count_requests_tasks_and_bells(client: httpx.Client, worker: LedgerWorker) -> None:
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
    assert "embedq_redis_up 1.0" in text
    assert "embedq_loop_stall_max_seconds " in text
    assert "process_resident_memory_bytes" in text


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
    assert app.series("embedq_backlog_limit_seconds", lane="online") == 0.01
    assert app.series("embedq_refused_tasks_total", model=MODEL, lane="online", code="backlog_full") == 1
    assert app.series("embedq_http_errors_total", route="/v1/tasks", code="backlog_full") == 1
    assert app.series("embedq_retry_after_seconds_count", code="backlog_full") == 1
    assert app.series("embedq_task_seconds_count", model=MODEL, lane="online") == 1
    assert app.series("embedq_task_seconds_bucket", lane="bulk", le="+Inf") == 1
    assert app.series("embedq_ended_tasks_total", lane="bulk", state="completed") == 1
    assert app.series("embedq_oldest_waiting_seconds", model=MODEL, lane="bulk") == 0
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


def test_a_defect_is_a_500_without_its_message(
    app: ServedApp, client: httpx.Client, worker: LedgerWorker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.ledger.client.set("eq:task:task_01a1fa1818cc7626bb9271b2af5733d5", "not a hash")
    answer = client.get("/v1/tasks/task_01a1fa1818cc7626bb9271b2af5733d5", headers={"x-request-id": "r-1"})
    worker.ledger.client.delete("eq:task:task_01a1fa1818cc7626bb9271b2af5733d5")

    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "r-1"
    assert answer.json()["error"]["code"] == "internal_error"
    assert "WRONGTYPE" not in answer.text
    (line,) = [record.getMessage() for record in caplog.records if record.name == "api.middleware"]
    assert line.startswith("request r-1 failed: ")
    assert "services/tasks.py:" in line, "it names a place of ours, not only where a library raised"
    assert "WRONGTYPE" not in line


def test_the_document_covers_every_route(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()

    assert set(document["paths"]) == {
        "/v1/embeddings",
        "/v1/tasks",
        "/v1/tasks/{task_id}",
        "/v1/tasks/{task_id}/result",
        "/v1/tasks/{task_id}/cancel",
        "/v1/files",
        "/v1/files/{file_id}",
        "/v1/files/{file_id}/content",
        "/v1/batches",
        "/v1/batches/{batch_id}",
        "/v1/batches/{batch_id}/cancel",
        "/v1/batches/{batch_id}/retry",
        "/v1/ingestions",
        "/v1/ingestions/files/known",
        "/v1/ingestions/{ingestion_id}",
        "/v1/ingestions/{ingestion_id}/documents",
        "/v1/ingestions/{ingestion_id}/output",
        "/v1/ingestions/{ingestion_id}/output/{name}",
        "/v1/ingestions/{ingestion_id}/cancel",
        "/v1/ingestions/{ingestion_id}/retry",
        "/v1/jobs",
        "/v1/key",
        "/v1/keys",
        "/v1/keys/{name}",
        "/v1/keys/{name}/purge",
        "/v1/keys/{name}/revoke",
        "/v1/keys/{name}/rotate",
        "/v1/datasets",
        "/v1/datasets/{name}",
        "/v1/datasets/{name}/search",
        "/v1/datasets/{name}/documents",
        "/v1/datasets/{name}/chunks",
        "/v1/models",
        "/v1/models/{model_id}",
        "/v1/service",
        "/v1/service/redis",
        "/",
        "/embed",
        "/info",
        "/health",
        "/health/live",
        "/health/ready",
        "/metrics",
    }
    submit = document["paths"]["/v1/tasks"]["post"]
    assert set(submit["responses"]) == {"202", "4XX", "5XX"}
    reference = submit["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert "input" in document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    assert document["components"]["schemas"]["Problem"]["properties"]["error"]


def test_the_document_says_how_files_are_sent(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    paths = document["paths"]
    files, content = paths["/v1/files"], paths["/v1/files/{file_id}/content"]["get"]["responses"]

    assert set(files["post"]["responses"]) == {"200", "4XX", "5XX"}
    assert [list(content[status]["content"]) for status in ("200", "206")] == [["application/octet-stream"]] * 2
    reference = files["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]["$ref"]
    form = document["components"]["schemas"][reference.rpartition("/")[2]]
    assert {"file", "purpose", "expires_after[seconds]"} <= set(form["properties"])
    assert {parameter["name"] for parameter in files["get"]["parameters"]} == {"purpose", "limit", "order", "after"}


def test_the_document_tells_the_errors_of_every_route(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]

    for path, methods in paths.items():
        for operation in methods.values():
            for errors in ("4XX", "5XX"):
                refused = operation["responses"][errors]
                form = "application/json" if path in {"/", "/embed", "/info", "/health"} else "application/problem+json"
                assert list(refused["content"]) == [form], path
                assert {"Retry-After", "x-should-retry"} <= set(refused["headers"])


def test_metrics_are_made_once_a_second_however_often_they_are_read(app: ServedApp) -> None:
    app.process.metrics.fresh_s = 1000
    first = app.client.get("/metrics").content
    for _ in range(3):
        app.client.get("/v1/models")
        assert app.client.get("/metrics").content == first
    app.process.metrics.fresh_s = 0


def test_the_bare_check_of_haproxy_is_answered(client: httpx.Client) -> None:
    assert client.options("/").status_code == 204

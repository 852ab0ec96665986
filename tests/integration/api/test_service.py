"""`GET /v1/service`: models, workers and queues as they are now."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from tasks.ledger.heartbeat import beat, stop
from tests.integration.api.ledger_worker import DIMENSION, MAX_TOKENS, LedgerWorker
from tests.integration.api.served import ANN, BOB, KEYS, MANAGED_KEYS, MODEL, ServedApp
from tests.ledger_builders import a_worker
from tests.processes import RedisServer, wait_until


def test_models_with_their_workers_and_lanes(client: httpx.Client, worker: LedgerWorker) -> None:
    client.post("/v1/tasks", json={"input": "x" * 400})
    client.post("/v1/tasks", json={"input": ["y" * 400] * 50, "lane": "bulk"})
    wait_until(lambda: client.get("/v1/service").json()["models"][0]["lanes"]["bulk"]["tasks"])

    body = client.get("/v1/service").json()
    (model,) = body["models"]

    assert body["object"] == "service"
    assert body["version"] == client.get("/openapi.json").json()["info"]["version"]
    assert body["started_at"] <= body["redis"]["seen_at"] <= body["time"] <= time.time()
    assert body["redis"]["up"] is True
    assert (model["id"], model["names"], model["dimension"], model["max_tokens"]) == (
        MODEL, [MODEL], DIMENSION, MAX_TOKENS,
    )  # fmt: skip
    assert (model["device"], model["compute"], model["precision"]) == ("cpu", "fake", "float32")
    assert model["tokens_per_second"] == 50_000
    assert model["lanes"] == {
        lane: {"tasks": 1, "tokens": tokens, "seconds": seconds, "oldest_s": model["lanes"][lane]["oldest_s"]}
        for lane, tokens, seconds in (("online", 100, 0.002), ("bulk", 5000, 0.1))
    }
    assert all(lane["oldest_s"] >= 0 for lane in model["lanes"].values())
    assert model["leases"] == 0
    assert model["workers"] == [
        {
            "id": worker.id, "pid": 1, "host": "here", "started_at": 0.0, "rss_bytes": 1, "items": 4,
            "forward_passes": 3, "streams": 1, "deaths": 0, "died_at": None, "died_of": None,
            "tokens_per_second": 50_000.0,
        }
    ]  # fmt: skip
    assert body["documents"] == {"workers": [], "tasks": 0, "absent_since": None}


def test_a_model_that_no_worker_has_loaded_yet_has_nulls(serve: Callable[..., ServedApp]) -> None:
    client = serve(served_name=f"{MODEL},other-name").client

    (model,) = client.get("/v1/service").json()["models"]

    assert model == {
        "id": MODEL, "names": [MODEL, "other-name"], "dimension": None, "max_tokens": None, "device": None,
        "compute": None, "precision": None, "tokens_per_second": None, "workers": [], "loading": [], "leases": 0,
        "lanes": {
            lane: {"tasks": 0, "tokens": 0, "seconds": 0.0, "oldest_s": None} for lane in ("online", "bulk")
        },
        "absent_since": None,
    }  # fmt: skip


def test_work_of_a_model_of_unknown_speed_has_no_seconds(serve: Callable[..., ServedApp]) -> None:
    client = serve().client
    client.post("/v1/tasks", json={"input": "x" * 40})

    def lane() -> dict[str, float | None]:
        found: dict[str, float | None] = client.get("/v1/service").json()["models"][0]["lanes"]["online"]
        return found

    wait_until(lambda: lane()["tasks"])
    assert lane() | {"oldest_s": 0} == {"tasks": 1, "tokens": 10, "seconds": None, "oldest_s": 0}


def test_a_key_is_needed_where_there_are_keys(serve: Callable[..., ServedApp]) -> None:
    client = serve(api_keys=KEYS).client

    assert client.get("/v1/service", headers=ANN).status_code == 200
    assert client.get("/v1/service", headers={"authorization": "Bearer wrong"}).status_code == 401


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
    refused = client.get("/v1/service/redis", headers=BOB)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "scope_missing")
    assert client.get("/v1/service/redis", headers=ANN).status_code == 200


def test_how_full_redis_is_beside_what_is_refused(private_redis: RedisServer) -> None:
    with ServedApp(private_redis.url, max_redis_memory_percent=50) as served:
        wait_until(lambda: served.client.get("/v1/service").json()["redis"]["limit_bytes"])
        redis = served.client.get("/v1/service").json()["redis"]
    assert redis["memory_percent"] == 100 * redis["used_bytes"] // redis["limit_bytes"]
    assert (redis["tasks_percent"], redis["queries_percent"]) == (45, 50)


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

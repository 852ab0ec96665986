"""Work that nobody waits for: how fast tasks of the bulk lane go, and what a query feels beside them or a batch."""

import json
import time
from collections.abc import Sequence

import httpx

from bench import load
from bench.load import LoadResult
from bench.report import Observed, of_load
from bench.scenarios.workload import Workload
from bench.servers.server import LONGEST_POLL_S
from bench.sizes import Sizes
from tests.processes import wait_until

_TEXTS_PER_TASK = 1000
_FIRST_TRIAL = 64
_OPEN = {"queued", "in_progress"}
_ENDED = {"completed", "failed", "expired", "cancelled"}


def whole_task(workload: Workload, sizes: Sizes) -> Observed:
    """Texts per second of tasks in the bulk lane, from the first submission to the end of the last one."""
    with workload.server.client() as client:
        count = max(_FIRST_TRIAL, round(_rate(client, workload) * sizes.bulk_s))
        return Observed({"bulk_texts_per_s": count / run_tasks(client, workload.bulk(count))})


def beside_bulk(workload: Workload, sizes: Sizes) -> Observed:
    """Ten queries a second while the model is saturated with passages."""
    plan = workload.steady_queries(sizes.beside_s)
    if not workload.server.is_product:
        beside = load.start(workload.passage_load(sizes.beside_s + 1, sizes.warm_s))
        time.sleep(1)
        result = load.run(plan)
        beside.result()
        return _felt("bulk", result)
    with workload.server.client() as client:
        ids = _submit(client, workload.bulk(round(2 * _rate(client, workload) * (sizes.beside_s + 2))))
        time.sleep(1)
        result = load.run(plan)
        early = all(client.get(f"/tasks/{each}").json()["status"] not in _OPEN for each in ids)
        for each in ids:
            client.delete(f"/tasks/{each}").raise_for_status()
    return _felt("bulk", result, early=early)


def beside_batch(workload: Workload, sizes: Sizes) -> Observed:
    """Ten queries and ten health checks a second beside the rows of a batch, and the rows a second done meanwhile."""
    seconds = 2 * sizes.beside_s
    checks, plan = workload.health_checks(seconds), workload.steady_queries(seconds)
    data = requests_file(workload.server.model, workload.bulk(sizes.batch_lines))
    with workload.server.client() as client:
        upload = client.post("/files", data={"purpose": "batch"}, files={"file": ("rows.jsonl", data)})
        file_id = upload.raise_for_status().json()["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        path = f"/batches/{client.post('/batches', json=body).raise_for_status().json()['id']}"
        wait_until(lambda: _rows(client, path), message="the first rows of a batch")
        done, began = _rows(client, path), time.perf_counter()
        beside = load.start(checks)
        result, health = load.run(plan), beside.result()
        rows_per_s = (_rows(client, path) - done) / (time.perf_counter() - began)
        early = client.get(path).json()["status"] in _ENDED
        client.post(f"{path}/cancel")  # refused when it has just ended
    felt = _felt("batch", result, early=early)
    more = {"under_batch_health_p99_ms": health.percentile(99), "under_batch_rows_per_s": rows_per_s}
    return Observed({**felt.values, **more}, felt.notes)


def requests_file(model: str, passages: Sequence[str]) -> bytes:
    """The input of a batch: one request per line, one passage each."""
    lines = (
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": model, "input": text, "encoding_format": "base64"},
        }
        for number, text in enumerate(passages)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def run_tasks(client: httpx.Client, texts: Sequence[str]) -> float:
    """Seconds that the texts take as bulk tasks; every text has a vector then, and nothing is left behind."""
    began = time.perf_counter()
    ids = _submit(client, texts)
    for task_id in ids:
        while (task := client.get(f"/tasks/{task_id}", params={"wait": LONGEST_POLL_S}).json())["status"] in _OPEN:
            pass
        assert task["status"] == "completed", task
    elapsed = time.perf_counter() - began
    for task_id in ids:
        client.delete(f"/tasks/{task_id}").raise_for_status()
    return elapsed


def _felt(what: str, result: LoadResult, *, early: bool = False) -> Observed:
    percentiles = {"p50": 50, "p99": 99, "max": 100}
    values = {f"under_{what}_{name}_ms": result.percentile(each) for name, each in percentiles.items()}
    observed = of_load(f"beside {what}", result, len(result.ms), values)
    ended = [f"beside {what}: it ended before the queries did"] if early else []
    return Observed(observed.values, [*observed.notes, *ended])


def _rate(client: httpx.Client, workload: Workload) -> float:
    """Texts per second, roughly: trials that double until one takes a second."""
    count = _FIRST_TRIAL
    while (elapsed := run_tasks(client, workload.bulk(count))) < 1:
        count *= 2
    return count / elapsed


def _submit(client: httpx.Client, texts: Sequence[str]) -> list[str]:
    ids = []
    for start in range(0, len(texts), _TEXTS_PER_TASK):
        body = {"input": texts[start : start + _TEXTS_PER_TASK], "lane": "bulk"}
        ids.append(client.post("/tasks", json=body).raise_for_status().json()["id"])
    return ids


def _rows(client: httpx.Client, path: str) -> int:
    batch = client.get(path).raise_for_status().json()
    assert batch["status"] != "failed", batch["errors"]
    return int(batch["request_counts"]["completed"])

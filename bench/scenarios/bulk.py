"""Work that nobody waits for: how fast tasks of the bulk lane go, and what a query feels beside them."""

import time
from collections.abc import Sequence

import httpx

from bench import load
from bench.load import LoadResult
from bench.report import Observed, of_load
from bench.scenarios.workload import Workload
from bench.servers.server import LONGEST_POLL_S
from bench.sizes import Sizes

_TEXTS_PER_TASK = 1000
_FIRST_TRIAL = 64
_OPEN = {"queued", "in_progress"}


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
        return _felt(result)
    with workload.server.client() as client:
        ids = _submit(client, workload.bulk(round(2 * _rate(client, workload) * (sizes.beside_s + 2))))
        time.sleep(1)
        result = load.run(plan)
        early = all(client.get(f"/tasks/{each}").json()["status"] not in _OPEN for each in ids)
        for each in ids:
            client.delete(f"/tasks/{each}").raise_for_status()
    return _felt(result, early=early)


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


def _felt(result: LoadResult, *, early: bool = False) -> Observed:
    values = {
        f"under_bulk_{name}_ms": result.percentile(each) for name, each in (("p50", 50), ("p99", 99), ("max", 100))
    }
    observed = of_load("beside bulk", result, len(result.ms), values)
    return Observed(observed.values, [*observed.notes, *(["beside bulk: it ended before the queries did"] * early)])


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

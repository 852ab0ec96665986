"""Work that nobody waits for: how fast it goes, and what a query feels beside it."""

import time
from collections.abc import Sequence

import httpx

from bench.load.plan import Load, LoadResult
from bench.load.run import Running, run_raw
from bench.scenarios.client import LONGEST_POLL_S, open_client
from bench.scenarios.observed import Observed, of_load
from bench.scenarios.passages import CONNECTIONS
from bench.scenarios.workload import Workload
from bench.sizes import Sizes

QUERIES_PER_S = 10.0
_TEXTS_PER_TASK = 1000
_FIRST_TRIAL = 64


def whole_task(workload: Workload, sizes: Sizes) -> Observed:
    """Texts per second of tasks in the bulk lane, from the first submission to the end of the last one."""
    with open_client(workload.server) as client:
        count = max(_FIRST_TRIAL, round(_rate(client, workload) * sizes.bulk_s))
        return Observed({"bulk_texts_per_s": count / _run(client, workload.bulk(count))})


def queries_beside(workload: Workload, sizes: Sizes) -> Observed:
    """Ten queries a second while the model is saturated with passages."""
    if workload.server.is_product:
        return _beside_task(workload, sizes)
    load = workload.passage_load(CONNECTIONS, sizes.under_bulk_s + 1, workload.warm_passages(sizes.warm_s))
    background = Running(load)
    try:
        time.sleep(1)
        observed = _queries(workload, sizes)
        background.result()
    except BaseException:
        background.stop()
        raise
    return observed


def _beside_task(workload: Workload, sizes: Sizes) -> Observed:
    with open_client(workload.server) as client:
        count = round(2 * _rate(client, workload) * (sizes.under_bulk_s + 2))
        ids = _submit(client, workload.bulk(count))
        time.sleep(1)
        observed = _queries(workload, sizes)
        left = [task_id for task_id in ids if not _ended(client.get(f"/tasks/{task_id}"))]
        for task_id in ids:
            client.delete(f"/tasks/{task_id}").raise_for_status()
    notes = observed.notes if left else [*observed.notes, "the bulk task ended before the queries did"]
    return Observed(observed.values, notes)


def ten_queries_a_second(workload: Workload, seconds: float) -> tuple[LoadResult, int]:
    """Single queries for so long, whatever the server does meanwhile; also how many different ones there were."""
    bodies = workload.queries(round(QUERIES_PER_S * seconds) + 1)
    load = Load(workload.server.embeddings_url, bodies, rate_per_s=QUERIES_PER_S, seconds=seconds)
    return run_raw(load), len(bodies)


def _queries(workload: Workload, sizes: Sizes) -> Observed:
    result, bodies = ten_queries_a_second(workload, sizes.under_bulk_s)
    values = {"under_bulk_p50_ms": result.p50_ms, "under_bulk_p99_ms": result.p99_ms}
    return of_load("beside bulk work", result, bodies, values)


def _rate(client: httpx.Client, workload: Workload) -> float:
    """Texts per second, roughly: trials that double until one takes a second."""
    count = _FIRST_TRIAL
    while (elapsed := _run(client, workload.bulk(count))) < 1:
        count *= 2
    return count / elapsed


def _run(client: httpx.Client, texts: Sequence[str]) -> float:
    """Seconds that the texts take as bulk tasks; every text has a vector then, and nothing is left behind."""
    began = time.perf_counter()
    ids = _submit(client, texts)
    for task_id in ids:
        while not _ended(answer := client.get(f"/tasks/{task_id}", params={"wait": LONGEST_POLL_S})):
            pass
        assert answer.json()["status"] == "completed", answer.text
    elapsed = time.perf_counter() - began
    for task_id in ids:
        client.delete(f"/tasks/{task_id}").raise_for_status()
    return elapsed


def _submit(client: httpx.Client, texts: Sequence[str]) -> list[str]:
    ids = []
    for start in range(0, len(texts), _TEXTS_PER_TASK):
        body = {"input": texts[start : start + _TEXTS_PER_TASK], "lane": "bulk"}
        ids.append(client.post("/tasks", json=body).raise_for_status().json()["id"])
    return ids


def _ended(answer: httpx.Response) -> bool:
    return answer.raise_for_status().json()["status"] not in {"queued", "in_progress"}

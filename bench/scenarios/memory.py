"""Whether memory grows with work: many texts through one stack, and the size of its processes on the way."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import texts
from bench.scenarios.observed import Observed
from bench.servers.product import product
from bench.sizes import Sizes

_TEXTS_PER_TASK = 1000
_MB = 1e6


def resident(pids: Mapping[str, int]) -> dict[str, float]:
    """Resident memory now, in MB, of the web tier and of the process that holds the model."""
    sizes = {role: psutil.Process(pids[role]).memory_info().rss / _MB for role in ("api", "worker")}
    return {f"{role}_rss_mb": size for role, size in sizes.items()}


def growth(folder: Path, sizes: Sizes, settings: Mapping[str, Any]) -> Observed:
    """By how many percent the largest sample after the first count of texts exceeds the one at that count."""
    first, last = sizes.memory_texts
    samples: list[dict[str, float]] = []
    with product(folder, settings) as server, httpx.Client(base_url=server.base_url, timeout=80) as client:
        for done in range(_TEXTS_PER_TASK, last + 1, _TEXTS_PER_TASK):
            _run_task(client, texts.queries(_TEXTS_PER_TASK, seed=done))
            if done >= first:
                samples.append(resident(server.pids))
    return Observed(
        {
            f"{role}_growth_percent": growth_percent([sample[f"{role}_rss_mb"] for sample in samples])
            for role in ("api", "worker")
        }
    )


def growth_percent(samples: Sequence[float]) -> float:
    """Of the largest sample over the first."""
    return 100 * (max(samples) / samples[0] - 1)


def _run_task(client: httpx.Client, inputs: list[str]) -> None:
    task = client.post("/tasks", json={"input": inputs, "lane": "bulk"}).raise_for_status().json()
    path = f"/tasks/{task['id']}"
    while task["status"] in {"queued", "in_progress"}:
        task = client.get(path, params={"wait": 50}).raise_for_status().json()
    assert task["status"] == "completed", task
    client.get(f"{path}/result").raise_for_status()
    client.delete(path).raise_for_status()

"""Whether memory grows with work: many texts through one stack, and the size of its processes on the way."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import texts
from bench.scenarios.observed import Observed
from bench.servers.product import product
from bench.sizes import Sizes

_TEXTS_PER_TASK = 1000
_PASSAGES_PER_TASK = 50
_SAMPLE_EVERY_S = 1.0
_ROLES = ("api", "worker")
_MB = 1e6


def resident(pids: Mapping[str, int]) -> dict[str, float]:
    """Resident memory now, in MB, of the web tier and of the process that holds the model."""
    sizes = {role: psutil.Process(pids[role]).memory_info().rss / _MB for role in _ROLES}
    return {f"{role}_rss_mb": size for role, size in sizes.items()}


def growth(folder: Path, sizes: Sizes, settings: Mapping[str, Any]) -> Observed:
    """By how many percent the largest sample, one each second, exceeds the one after the first count of texts."""
    first, last = sizes.memory_texts
    with (
        product(folder, settings) as server,
        httpx.Client(base_url=server.base_url, timeout=80) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        _run_tasks(client, range(0, first, _TEXTS_PER_TASK))
        samples = [resident(server.pids)]
        work = thread.submit(_run_tasks, client, range(first, last, _TEXTS_PER_TASK))
        while not wait([work], timeout=_SAMPLE_EVERY_S).done:
            samples.append(resident(server.pids))
        work.result()
        samples.append(resident(server.pids))
    return Observed(
        {f"{role}_growth_percent": growth_percent([sample[f"{role}_rss_mb"] for sample in samples]) for role in _ROLES},
        [_range_of(role, samples, sizes) for role in _ROLES],
    )


def growth_percent(samples: Sequence[float]) -> float:
    """Of the largest sample over the first."""
    return 100 * (max(samples) / samples[0] - 1)


def _range_of(role: str, samples: Sequence[Mapping[str, float]], sizes: Sizes) -> str:
    megabytes = [sample[f"{role}_rss_mb"] for sample in samples]
    first, last = sizes.memory_texts
    return (
        f"memory of the {role}: {megabytes[0]:.0f} MB after {first:,} texts, at most {max(megabytes):.0f} and in "
        f"the end {megabytes[-1]:.0f} MB up to {last:,} ({len(megabytes)} samples)"
    )


def _run_tasks(client: httpx.Client, seeds: Iterable[int]) -> None:
    for seed in seeds:
        # Both kinds, so that forward passes have many sizes: what a library keeps for each of them adds up.
        passages = texts.passages(_PASSAGES_PER_TASK, seed)
        _run_task(client, passages + texts.queries(_TEXTS_PER_TASK - _PASSAGES_PER_TASK, seed))


def _run_task(client: httpx.Client, inputs: list[str]) -> None:
    task = client.post("/tasks", json={"input": inputs, "lane": "bulk"}).raise_for_status().json()
    path = f"/tasks/{task['id']}"
    while task["status"] in {"queued", "in_progress"}:
        task = client.get(path, params={"wait": 50}).raise_for_status().json()
    assert task["status"] == "completed", task
    client.get(f"{path}/result").raise_for_status()
    client.delete(path).raise_for_status()

"""What grows with work: the memory of processes over many texts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import texts
from bench.report import Observed
from bench.scenarios.bulk import run_tasks
from bench.servers.product import product
from bench.sizes import Sizes

_TEXTS_PER_TASK = 1000
_PASSAGES_PER_TASK = 50
_SAMPLE_EVERY_S = 1.0
_ROLES = ("api", "worker")
_MB = 1e6


def resident(pids: Mapping[str, int]) -> dict[str, float]:
    """Resident memory now, in MB, of the web tier and of the process that holds the model."""
    return {f"{role}_rss_mb": psutil.Process(pids[role]).memory_info().rss / _MB for role in _ROLES}


def memory(settings: Mapping[str, Any], folder: Path, sizes: Sizes) -> Observed:
    """By how many percent the largest sample, one each second, exceeds the one after the first count of texts."""
    first, last = sizes.memory_texts
    with product(folder, settings) as server, server.client() as client, ThreadPoolExecutor(1) as thread:
        _run_texts(client, range(0, first, _TEXTS_PER_TASK))
        samples = [resident(server.pids)]
        work = thread.submit(_run_texts, client, range(first, last, _TEXTS_PER_TASK))
        while not wait([work], timeout=_SAMPLE_EVERY_S).done:
            samples.append(resident(server.pids))
        work.result()
        samples.append(resident(server.pids))
    values, notes = {}, []
    for role in _ROLES:
        found = [sample[f"{role}_rss_mb"] for sample in samples]
        values[f"{role}_growth_percent"] = growth_percent(found)
        notes.append(f"memory of the {role}: {found[0]:.0f} MB after {first:,} texts, then at most {max(found):.0f}")
    return Observed(values, notes)


def growth_percent(samples: Sequence[float]) -> float:
    """Of the largest sample over the first."""
    return 100 * (max(samples) / samples[0] - 1)


def _run_texts(client: httpx.Client, seeds: range) -> None:
    for seed in seeds:
        # Both kinds, so that forward passes have many sizes: what a library keeps for each of them adds up.
        passages = texts.passages(_PASSAGES_PER_TASK, seed)
        run_tasks(client, passages + texts.queries(_TEXTS_PER_TASK - _PASSAGES_PER_TASK, seed))

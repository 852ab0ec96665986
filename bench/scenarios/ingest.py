"""How fast text that needs no parsing becomes rows of a dataset; and a very long ingestion of very small documents."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import texts
from bench.report import Observed
from bench.scenarios.growth import growth_percent
from bench.scenarios.workload import Workload
from bench.servers.product import product
from bench.sizes import Sizes

_WARM = 64
_LOOK_EVERY_S, _LOOK_SELDOM_S = 0.1, 2.0
"""Looking costs the cores that the model needs: seldom in the middle, where nothing depends on it."""
_NEAR_THE_END_S = 4.0
_TEXTS_AT_ONCE = 10_000
_MB = 1e6


def throughput(workload: Workload, sizes: Sizes) -> Observed:
    """Chunks per second from the request until all are in the dataset."""
    with workload.server.client() as client:
        _ingest(client, workload.bulk(_WARM))  # the first one loads libraries
        chunks = texts.ingested(sizes.passages)
        return Observed({"ingest_chunks_per_s": len(chunks) / _ingest(client, chunks)})


def million(folder: Path, sizes: Sizes) -> Observed:
    """One file's way into a dataset, with the fake encoder: its speed, in the end too, and the growth of processes."""
    roots = folder / "roots"  # the stack refuses one that holds its data
    roots.mkdir()
    with (roots / "million.jsonl").open("w", encoding="utf-8") as lines:
        for first in range(0, sizes.documents, _TEXTS_AT_ONCE):
            for number, text in enumerate(texts.queries(min(_TEXTS_AT_ONCE, sizes.documents - first), first), first):
                lines.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    settings = {"compute": "fake", "ingest_roots": roots}
    samples: list[tuple[float, int, dict[str, float]]] = []
    with product(folder, settings) as stack, stack.client() as client:

        def look(spent_s: float, ingestion: Mapping[str, Any]) -> float:
            if not samples or spent_s - samples[-1][0] >= sizes.sample_s or ingestion["finished_at"]:
                samples.append((spent_s, ingestion["file_counts"]["completed"], _resident_mb(stack.pids)))
            return min(sizes.sample_s, _LOOK_EVERY_S)

        body = {"source": {"urls": [f"file://{(roots / 'million.jsonl').resolve()}"]}, "sink": {"type": "dataset"}}
        spent_s = _followed(client, body, look)
    third = len(samples) // 3
    values = {"ingest_documents_per_s": samples[-1][1] / spent_s}
    if start_per_s := _rate(samples[: third + 1]):  # a short one may have loaded nothing yet
        values["ingest_end_of_start"] = _rate(samples[-third - 1 :]) / start_per_s
    for role in stack.pids:
        sizes_mb = [resident[role] for _, _, resident in samples]
        values[f"ingest_{role}_most_mb"] = max(sizes_mb)
        values[f"ingest_{role}_growth_percent"] = growth_percent([max(sizes_mb[: third + 1]), *sizes_mb])
    return Observed(values)


def _ingest(client: httpx.Client, documents: Sequence[str]) -> float:
    """Seconds from the request to the first look that finds every document loaded."""
    source = {"documents": [{"id": f"d{number}", "text": text} for number, text in enumerate(documents)]}

    def look(spent_s: float, ingestion: Mapping[str, Any]) -> float:
        done = ingestion["chunks"]["embedded"]
        left_s = spent_s * (len(documents) / done - 1) if done else 0.0
        return _LOOK_SELDOM_S if left_s > _NEAR_THE_END_S else _LOOK_EVERY_S

    return _followed(client, {"source": source, "chunking": {"type": "none"}}, look)


def _followed(client: httpx.Client, body: Any, look: Callable[[float, Mapping[str, Any]], float]) -> float:
    """Seconds until it is completed. `look` is told the time and what is there, and says when to look again."""
    began = time.perf_counter()
    path = f"/ingestions/{client.post('/ingestions', json=body).raise_for_status().json()['id']}"
    while True:
        ingestion = client.get(path).raise_for_status().json()
        spent_s = time.perf_counter() - began
        pause_s = look(spent_s, ingestion)
        if ingestion["finished_at"]:
            assert (ingestion["status"], ingestion["file_counts"]["failed"]) == ("completed", 0), ingestion
            return spent_s
        time.sleep(pause_s)


def _rate(samples: Sequence[tuple[float, int, Any]]) -> float:
    (began_s, before, _), (ended_s, after, _) = samples[0], samples[-1]
    return (after - before) / (ended_s - began_s) if ended_s > began_s else 0.0


def _resident_mb(pids: Mapping[str, int]) -> dict[str, float]:
    return {role: psutil.Process(pid).memory_info().rss / _MB for role, pid in pids.items()}

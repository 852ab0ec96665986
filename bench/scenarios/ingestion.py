"""How fast text that needs no parsing becomes rows of a dataset, beside the bare encoder on the same chunks."""

import time
from collections.abc import Sequence

import httpx

from bench import texts
from bench.scenarios import ingesting
from bench.scenarios.client import open_client
from bench.scenarios.observed import Observed
from bench.scenarios.workload import Workload
from bench.sizes import Sizes

SEED = 1_000_003
"""Of the passages: the bare encoder gets the same, and nothing else in a run does."""
_WARM = 64
_TIMEOUT_S = 600.0
_LOOK_EVERY_S = 0.25


def passages(count: int) -> list[str]:
    """None is longer than the model reads, so that each is one chunk."""
    return texts.passages(count, SEED)


def throughput(workload: Workload, sizes: Sizes) -> Observed:
    """Chunks per second from the request to the end of the ingestion, when all are in the dataset."""
    with open_client(workload.server) as client:
        _run(client, workload.bulk(_WARM))  # the first one loads libraries
        chunks = passages(sizes.ingest_passages)
        return Observed({"ingest_chunks_per_s": len(chunks) / _run(client, chunks)})


def _run(client: httpx.Client, documents: Sequence[str]) -> float:
    """Seconds."""
    source = {"documents": [{"id": f"d{number}", "text": text} for number, text in enumerate(documents)]}
    body = {"source": source, "chunking": {"type": "none"}}
    began = time.perf_counter()
    ingestion_id = client.post("/ingestions", json=body).raise_for_status().json()["id"]
    # Looking costs the cores that the model needs.
    while (ingestion := ingesting.read(client, ingestion_id))["status"] not in ingesting.ENDED:
        assert time.perf_counter() - began < _TIMEOUT_S, ingestion
        time.sleep(_LOOK_EVERY_S)
    elapsed = time.perf_counter() - began
    assert ingesting.require_completed(ingestion)["chunks"]["loaded"] == len(documents), ingestion
    return elapsed

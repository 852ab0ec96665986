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
_LOOK_EVERY_S, _LOOK_SELDOM_S = 0.1, 2.0
"""Looking costs the cores that the model needs: seldom in the middle, where nothing depends on it."""
_NEAR_THE_END_S = 4.0


def passages(count: int) -> list[str]:
    """None is longer than the model reads, so that each is one chunk."""
    return texts.passages(count, SEED)


def throughput(workload: Workload, sizes: Sizes) -> Observed:
    """Chunks per second from the request until all are in the dataset."""
    with open_client(workload.server) as client:
        _ingest(client, workload.bulk(_WARM))  # the first one loads libraries
        chunks = passages(sizes.ingest_passages)
        return Observed({"ingest_chunks_per_s": len(chunks) / _ingest(client, chunks)})


def _ingest(client: httpx.Client, documents: Sequence[str]) -> float:
    """Seconds from the request to the first look that finds it completed."""
    source = {"documents": [{"id": f"d{number}", "text": text} for number, text in enumerate(documents)]}
    began = time.perf_counter()
    answer = client.post("/ingestions", json={"source": source, "chunking": {"type": "none"}})
    ingestion_id = answer.raise_for_status().json()["id"]
    while True:
        ingestion = ingesting.read(client, ingestion_id)
        spent_s, done = time.perf_counter() - began, ingestion["chunks"]["embedded"]
        if ingestion["status"] in ingesting.ENDED:
            break
        assert spent_s < _TIMEOUT_S, ingestion
        left_s = spent_s * (len(documents) / done - 1) if done else 0.0
        time.sleep(_LOOK_SELDOM_S if left_s > _NEAR_THE_END_S else _LOOK_EVERY_S)
    assert ingesting.require_completed(ingestion)["chunks"]["loaded"] == len(documents), ingestion
    return spent_s

"""How fast text that needs no parsing becomes rows of a dataset, beside the bare encoder on the same chunks."""

import time
from collections.abc import Sequence
from typing import TypeAlias

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
_LOOK_EVERY_S, _LOOK_SELDOM_S = 0.25, 2.0
"""Looking costs the cores that the model needs: seldom in the middle, where nothing depends on it."""
_NEAR_THE_END_S = 4.0

Look: TypeAlias = tuple[float, int]
"""Seconds since the request, and how many chunks had vectors."""


def passages(count: int) -> list[str]:
    """None is longer than the model reads, so that each is one chunk."""
    return texts.passages(count, SEED)


def throughput(workload: Workload, sizes: Sizes) -> Observed:
    """Chunks per second from the request until all are in the dataset, and from the first vector to the last."""
    with open_client(workload.server) as client:
        _ingest(client, workload.bulk(_WARM))  # the first one loads libraries
        chunks = passages(sizes.ingest_passages)
        looks = _ingest(client, chunks)
    (first_s, first), (last_s, last) = embedding(looks)
    return Observed(
        {
            "ingest_chunks_per_s": len(chunks) / looks[-1][0],
            "ingest_embedding_per_s": (last - first) / (last_s - first_s),
        }
    )


def embedding(looks: Sequence[Look]) -> tuple[Look, Look]:
    """The first look that saw a vector, and the first one that saw all of them."""
    first = next(look for look in looks if look[1] > 0)
    return first, next(look for look in looks if look[1] == looks[-1][1])


def _ingest(client: httpx.Client, documents: Sequence[str]) -> list[Look]:
    source = {"documents": [{"id": f"d{number}", "text": text} for number, text in enumerate(documents)]}
    began = time.perf_counter()
    answer = client.post("/ingestions", json={"source": source, "chunking": {"type": "none"}})
    ingestion_id = answer.raise_for_status().json()["id"]
    looks: list[Look] = []
    while True:
        ingestion = ingesting.read(client, ingestion_id)
        looks.append((time.perf_counter() - began, ingestion["chunks"]["embedded"]))
        if ingestion["status"] in ingesting.ENDED:
            break
        assert looks[-1][0] < _TIMEOUT_S, ingestion
        spent_s, done = looks[-1]
        left_s = spent_s * (len(documents) / done - 1) if done else 0.0
        time.sleep(_LOOK_SELDOM_S if left_s > _NEAR_THE_END_S else _LOOK_EVERY_S)
    assert ingesting.require_completed(ingestion)["chunks"]["loaded"] == len(documents), ingestion
    return looks

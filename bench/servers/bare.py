"""The bare encoder, no server: what the model can do on this machine."""

import itertools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import texts
from bench.load import apart
from tasks.encoder.encode import encode
from tasks.encoder.interface import Text
from tasks.encoder.load import load
from tasks.pieces import pieces
from tasks.worker.claim_size import pass_budget
from worker_config.settings import load_settings, set_library_defaults

_PASSAGES_AT_ONCE = 128
_QUERIES_AT_ONCE = 256


def measure_bare(seconds: float, settings: Mapping[str, Any], *, ingested: int = 0) -> tuple[dict[str, float], str]:
    """Figures, by the names of those that they are the ceiling of; and what the encoder is.

    `ingested`: so many of the passages that an ingestion gets are encoded too.
    """
    return apart(_measure, seconds, settings, ingested)


def _measure(seconds: float, chosen: Mapping[str, Any], ingested: int) -> tuple[dict[str, float], str]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    settings = load_settings(**chosen)
    set_library_defaults(settings.threads)
    encoder = load(settings)
    budget, info = pass_budget(encoder.info.device), encoder.info

    def run(batch: Sequence[str]) -> float:
        began = time.perf_counter()
        encode(encoder, [Text(text) for text in batch], max_padded_tokens=budget)
        return time.perf_counter() - began

    def rate(make: Callable[[int, int], list[str]], at_once: int) -> float:
        # As many threads as the worker has: this is the ceiling of the device, not of one thread.
        seeds = itertools.count(2)

        def one_thread(_: int) -> float:
            spent = done = 0.0
            while spent < seconds:
                batch = make(at_once, next(seeds))
                spent += run(batch)
                done += len(batch)
            return done / spent

        return sum(threads.map(one_thread, range(encoder.streams)))

    run(texts.passages(16, seed=1))
    with ThreadPoolExecutor(encoder.streams) as threads:
        passages, queries = rate(texts.passages, _PASSAGES_AT_ONCE), rate(texts.queries, _QUERIES_AT_ONCE)
        figures = {
            "passages_per_s": passages,
            "bulk_texts_per_s": passages,
            "queries_32_per_s": queries,
            "queries_64_per_s": queries,
            "queries_1_p50_ms": 1000 * statistics.median(run([text]) for text in texts.queries(200, seed=1)),
        }
        if ingested:
            batches = list(pieces(texts.ingested(ingested), _PASSAGES_AT_ONCE))
            began = time.perf_counter()
            list(threads.map(run, batches))
            figures["ingest_chunks_per_s"] = ingested / (time.perf_counter() - began)
    return figures, f"{info.model}, {info.device}, {info.compute}, {info.precision}"

"""The bare encoder, no server: what the model can do on this machine.

`python -m bench.servers.bare SECONDS PASSAGES` prints JSON. Its keys are those of the figures that it is the
ceiling of.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench import texts
from bench.load.percentile import percentile
from bench.load.run import CHECKOUT, LoadError
from bench.scenarios import ingestion
from tasks.encoder.encode import encode
from tasks.encoder.interface import Encoder, Text
from tasks.encoder.load import load
from tasks.pieces import pieces
from tasks.worker.claim_size import pass_budget
from worker_config.settings import child_environment, load_settings, set_library_defaults

_PASSAGES_AT_ONCE = 128
_QUERIES_AT_ONCE = 256


def measure_bare(seconds: float, settings: Mapping[str, Any], *, ingested: int = 0) -> dict[str, Any]:
    """Runs this file in a process of its own; figures under `figures`, and what the encoder is.

    `ingested`: so many of the passages that an ingestion gets are encoded too.

    Raises:
        LoadError: the model cannot be loaded.
    """
    command = [sys.executable, "-m", "bench.servers.bare", str(seconds), str(ingested)]
    environment = {**child_environment(**settings), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, cwd=CHECKOUT, env=environment, check=False)
    if done.returncode:
        raise LoadError(f"the bare encoder ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _measure(seconds: float, ingested: int) -> dict[str, Any]:
    settings = load_settings()
    set_library_defaults(settings.threads)
    encoder = load(settings)
    budget = pass_budget(encoder.info.device)

    def run(batch: Sequence[str]) -> None:
        encode(encoder, [Text(text) for text in batch], max_padded_tokens=budget)

    def rate(make: Callable[[int], list[str]]) -> float:
        # As many threads as the worker has: this is the ceiling of the device, not of one thread.
        seeds = itertools.count(2)
        with ThreadPoolExecutor(encoder.streams) as threads:
            return sum(threads.map(lambda _: _rate(run, make, seeds, seconds), range(encoder.streams)))

    run(texts.passages(16, seed=1))
    passages = rate(lambda seed: texts.passages(_PASSAGES_AT_ONCE, seed))
    queries = rate(lambda seed: texts.queries(_QUERIES_AT_ONCE, seed))
    figures = {
        "passages_per_s": passages,
        "bulk_texts_per_s": passages,
        "queries_32_per_s": queries,
        "queries_64_per_s": queries,
        "queries_1_p50_ms": _single_ms(run, seconds / 2),
    }
    if ingested:
        figures["ingest_chunks_per_s"] = _rate_of(run, ingestion.passages(ingested), encoder.streams)
    return {"figures": figures, "encoder": _describe(encoder)}


def _rate(
    run: Callable[[Sequence[str]], None], make: Callable[[int], list[str]], seeds: Iterator[int], seconds: float
) -> float:
    spent, done = 0.0, 0
    for seed in seeds:
        batch = make(seed)
        began = time.perf_counter()
        run(batch)
        spent += time.perf_counter() - began
        done += len(batch)
        if spent >= seconds:
            break
    return done / spent


def _rate_of(run: Callable[[Sequence[str]], None], passages: Sequence[str], streams: int) -> float:
    """Texts per second of all of these, by as many threads as the worker has."""
    batches = list(pieces(passages, _PASSAGES_AT_ONCE))
    began = time.perf_counter()
    with ThreadPoolExecutor(streams) as threads:
        list(threads.map(run, batches))
    return len(passages) / (time.perf_counter() - began)


def _single_ms(run: Callable[[Sequence[str]], None], seconds: float) -> float:
    lasted: list[float] = []
    end = time.perf_counter() + seconds
    for text in itertools.cycle(texts.queries(1000, seed=1)):
        began = time.perf_counter()
        run([text])
        lasted.append(1000 * (time.perf_counter() - began))
        if time.perf_counter() > end:
            break
    return percentile(lasted, 50)


def _describe(encoder: Encoder) -> dict[str, Any]:
    info = encoder.info
    return {"model": info.model, "device": info.device, "compute": info.compute, "precision": info.precision}


if __name__ == "__main__":
    print(json.dumps(_measure(float(sys.argv[1]), int(sys.argv[2]))))

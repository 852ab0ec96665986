"""A very long ingestion of very small documents: does memory stay where it is, and the speed?"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import redis

from bench import texts
from bench.scenarios import ingesting
from bench.scenarios.observed import Observed
from bench.servers.product import product
from bench.sizes import Sizes
from stack.redis_server import default_maxmemory_bytes
from stack.testing import RedisServer, wait_until

SERIES = "ingest-million"
_TEXTS_AT_ONCE = 10_000
_MB = 1e6
_START_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.5
"""For the end, which may come between two samples: with a look every 5 s the rate was up to a twentieth too low."""
Sample = dict[str, float]


def ingest(folder: Path, sizes: Sizes) -> Observed:
    """Samples over time of one file's way into a dataset, with the fake encoder, and what they say."""
    server = RedisServer(folder / "redis", unix_socket=True, maxmemory_bytes=default_maxmemory_bytes())
    roots = folder / "roots"  # the stack refuses one that holds its data
    roots.mkdir()
    source = ingesting.records_file(roots / "million.jsonl", _texts(sizes.ingest_documents))
    refusals: list[str] = []
    settings = {"compute": "fake", "ingest_roots": roots, "redis_url": server.url}
    try:
        server.start()
        with (
            product(folder, settings) as stack,
            server.client() as store,
            httpx.Client(base_url=stack.base_url, timeout=60) as client,
        ):
            processes = Processes({**stack.pids, "redis": server.pid})
            ingestion_id = ingesting.start(client, source)
            look = partial(_look, client, ingestion_id, refusals)
            samples = list(_samples(look, store, processes, sizes.ingest_sample_s))
    finally:
        server.stop()
    result = observed(samples)
    return Observed(result.values, [*result.notes, *refusals], result.series)


def observed(samples: Sequence[Sample]) -> Observed:
    """What samples of `documents` loaded, megabytes (`…_mb`) and processor seconds (`…_cpu_s`) over `seconds` say."""
    last = samples[-1]
    sizes = {key: [sample[key] for sample in samples] for key in last if key.endswith("_mb")}
    values = {
        "ingest_documents_per_s": last["documents"] / last["seconds"],
        "ingest_redis_used_mb": max(sizes["redis_used_mb"]),
    }
    if start := _rate(samples, 0):  # a short one may have loaded nothing yet
        values["ingest_end_of_start"] = _rate(samples, 2) / start
    for key, megabytes in sizes.items():
        if key != "redis_used_mb":
            growth_percent = 100 * (max(megabytes) / max(_first(megabytes)) - 1)
            values[f"ingest_{key.removesuffix('_mb')}_growth_percent"] = growth_percent
    notes = [_described(key.removesuffix("_mb"), megabytes) for key, megabytes in sizes.items()]
    cost = ", ".join(
        f"{key.removesuffix('_cpu_s')} {1e6 * last[key] / last['documents']:.0f}"
        for key in last
        if key.endswith("_cpu_s")
    )
    notes.append(f"ingestion of {last['documents']:,.0f} documents, processor time of each in us: {cost}")
    return Observed(values, notes, {SERIES: samples})


class Processes:
    """The processes of a stack, by role; those of the documents worker one by one."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        parent = psutil.Process(pids["documents"])
        (child,) = wait_until(parent.children, timeout_s=_START_TIMEOUT_S, message="the documents worker's own process")
        self._processes = {
            **{role: psutil.Process(pid) for role, pid in pids.items() if role != "documents"},
            "documents": child,
            "documents_parent": parent,
            "worker_parent": psutil.Process(pids["worker"]).parent(),
        }

    def sample(self) -> Sample:
        """Resident megabytes and processor seconds of each process."""
        sample: Sample = {}
        for role, process in self._processes.items():
            sample[f"{role}_mb"] = process.memory_info().rss / _MB
            times = process.cpu_times()
            sample[f"{role}_cpu_s"] = times.user + times.system
        return sample


def _texts(count: int) -> Iterator[str]:
    for first in range(0, count, _TEXTS_AT_ONCE):
        yield from texts.queries(min(_TEXTS_AT_ONCE, count - first), first)


def _look(client: httpx.Client, ingestion_id: str, refusals: list[str]) -> Mapping[str, Any] | None:
    """The ingestion as it is now; None, and a note in `refusals`, when the API says that it cannot tell."""
    try:
        return ingesting.read(client, ingestion_id)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            raise
        refusals.append(f"the API answered 503: {error.response.text}")
    except httpx.TimeoutException as error:
        refusals.append(f"the API did not answer: {type(error).__name__}")
    return None


def _samples(
    look: Callable[[], Mapping[str, Any] | None], store: redis.Redis, processes: Processes, every_s: float
) -> Iterator[Sample]:
    began = time.monotonic()
    start, due = processes.sample(), began
    while True:
        if (ingestion := look()) is not None:
            ended = ingestion["status"] in ingesting.ENDED
            if ended or time.monotonic() >= due:
                due = time.monotonic() + every_s
                now = processes.sample()
                spent = {key: value - start[key] for key, value in now.items() if key.endswith("_cpu_s")}
                yield {
                    "seconds": time.monotonic() - began,
                    "documents": ingestion["file_counts"]["completed"],
                    **now,
                    **spent,
                    "redis_used_mb": float(store.info("memory")["used_memory"]) / _MB,
                }
            if ended:
                ingesting.require_completed(ingestion)
                return
        time.sleep(min(every_s, _LOOK_EVERY_S))


def _rate(samples: Sequence[Sample], third: int) -> float:
    """Documents per second in one third of the time: 0, 1 or 2."""
    seconds = samples[-1]["seconds"] / 3
    first, last = (_documents_at(samples, at * seconds) for at in (third, third + 1))
    return (last - first) / seconds


def _documents_at(samples: Sequence[Sample], seconds: float) -> float:
    """How many there were, or would have been if they came evenly between two samples."""
    times, documents = ([sample[key] for sample in samples] for key in ("seconds", "documents"))
    return float(np.interp(seconds, times, documents))


def _first(values: Sequence[float]) -> Sequence[float]:
    """The first third of them."""
    return values[: -(-len(values) // 3)]


def _described(role: str, megabytes: Sequence[float]) -> str:
    first = max(_first(megabytes))
    return f"memory of {role}: at most {first:.0f} MB in the first third, {max(megabytes):.0f} MB in all"

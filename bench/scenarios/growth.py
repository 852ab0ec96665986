"""What grows with work: the memory of processes over many texts, and the cost of the ledger with the size of a job."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench import texts
from bench.report import Observed
from bench.scenarios.bulk import run_tasks
from bench.servers.product import api_alone, product
from bench.sizes import Sizes
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.ledger.task import PIECE_TEXTS, Lane
from tests.processes import RedisServer, Roles

_TEXTS_PER_TASK = 1000
_PASSAGES_PER_TASK = 50
_SAMPLE_EVERY_S = 1.0
_ROLES = ("api", "worker")
_MB, _MIB = 1e6, 2**20
_ROWS_PER_TASK = 30 * PIECE_TEXTS
_POLL_S = 0.01
_DRAIN_TIMEOUT_S = 600.0


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


def ledger(folder: Path, sizes: Sizes) -> Observed:
    """Microseconds per piece to submit and to drain a job, MiB in Redis when queued and when done; no model."""
    values: dict[str, float] = {}
    for rows in sizes.ledger_rows:
        values |= {f"ledger_{rows}_{name}": value for name, value in _job(folder / str(rows), rows).items()}
    return Observed(values)


def _job(folder: Path, rows: int) -> dict[str, float]:
    tasks = [range(start, min(rows, start + _ROWS_PER_TASK)) for start in range(0, rows, _ROWS_PER_TASK)]
    us_per_piece = 1e6 / sum(-(-len(task) // PIECE_TEXTS) for task in tasks)
    # No limit: before a worker says how small its vectors are, room for large ones is kept, and a million had none.
    with api_alone(folder, maxmemory_bytes=0) as (server, store, roles), server.client() as client:
        empty, began = _used_mib(store), time.perf_counter()
        for task in tasks:
            body = {"input": [f"row {number}" for number in task], "lane": "bulk"}
            client.post("/tasks", json=body).raise_for_status()
        submitted_s, queued = time.perf_counter() - began, _used_mib(store)
        drained_s = _drain(server.model, store, roles)
        return {
            "submit_us": us_per_piece * submitted_s,
            "drain_us": us_per_piece * drained_s,
            "queued_mib": queued - empty,
            "done_mib": _used_mib(store) - empty,
        }


def _drain(model: str, store: RedisServer, roles: Roles) -> float:
    """Seconds from the first claim to the last commit, as seen every 10 ms."""
    roles.worker(fake_dimension=8, start=False).launch()
    with store.client() as connection:
        reader = Ledger(connection)
        began, end, begun = time.perf_counter(), time.monotonic() + _DRAIN_TIMEOUT_S, False
        while (state := reader.run(overview(model))[model]).backlog_tasks[Lane.BULK]:
            assert time.monotonic() < end, f"{state.backlog_tasks} tasks are open after {_DRAIN_TIMEOUT_S} s"
            begun = begun or state.leases > 0
            began = began if begun else time.perf_counter()
            time.sleep(_POLL_S)
        return time.perf_counter() - began


def _used_mib(store: RedisServer) -> float:
    with store.client() as connection:
        return float(connection.info("memory")["used_memory"]) / _MIB

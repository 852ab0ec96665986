"""What the ledger costs by itself: growing jobs through the fake encoder, with texts and vectors of no weight."""

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import redis

from bench.scenarios.observed import Observed
from bench.servers.parts import api_alone
from bench.servers.server import Server
from bench.sizes import Sizes
from stack.testing import RedisServer, Roles
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.ledger.task import PIECE_TEXTS, Lane

_ROWS_PER_TASK = 30 * PIECE_TEXTS
_POLL_S = 0.01
_DRAIN_TIMEOUT_S = 600.0
_MIB = 2**20


def growing_jobs(folder: Path, sizes: Sizes) -> Observed:
    """For each size: microseconds per piece to submit and to drain, MiB in Redis when queued and when done."""
    values: dict[str, float] = {}
    for rows in sizes.ledger_rows:
        values |= {f"ledger_{rows}_{name}": value for name, value in _job(folder / str(rows), rows).items()}
    return Observed(values)


def _job(folder: Path, rows: int) -> dict[str, float]:
    pieces = sum(-(-len(task) // PIECE_TEXTS) for task in _tasks(rows))
    # No limit: before a worker says how small its vectors are, room for large ones is kept, and a million had none.
    with api_alone(folder, maxmemory_bytes=0) as (server, store, roles), store.client() as client:
        empty = _used_mib(client)
        began = time.perf_counter()
        _submit(server, rows)
        submitted_s = time.perf_counter() - began
        queued = _used_mib(client)
        drained_s = _drain(server, store, roles)
        return {
            "submit_us": 1e6 * submitted_s / pieces,
            "drain_us": 1e6 * drained_s / pieces,
            "queued_mib": queued - empty,
            "done_mib": _used_mib(client) - empty,
        }


def _tasks(rows: int) -> Iterator[range]:
    for start in range(0, rows, _ROWS_PER_TASK):
        yield range(start, min(rows, start + _ROWS_PER_TASK))


def _submit(server: Server, rows: int) -> None:
    with httpx.Client(timeout=60, trust_env=False) as client:
        for task in _tasks(rows):
            body = {"input": [f"row {number}" for number in task], "lane": "bulk"}
            client.post(server.tasks_url, json=body).raise_for_status()


def _drain(server: Server, store: RedisServer, roles: Roles) -> float:
    """Seconds from the first claim to the last commit, as seen every 10 ms."""
    roles.worker(fake_dimension=8, start=False).launch()
    ledger = Ledger.connect(store.url)
    try:
        began, end = time.perf_counter(), time.monotonic() + _DRAIN_TIMEOUT_S
        begun = False
        while (state := ledger.run(overview(server.model))[server.model]).backlog_tasks[Lane.BULK]:
            assert time.monotonic() < end, f"{state.backlog_tasks} tasks are open after {_DRAIN_TIMEOUT_S} s"
            begun = begun or state.leases > 0
            if not begun:
                began = time.perf_counter()
            time.sleep(_POLL_S)
        return time.perf_counter() - began
    finally:
        ledger.close()


def _used_mib(client: redis.Redis) -> float:
    return float(client.info("memory")["used_memory"]) / _MIB

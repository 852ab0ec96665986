"""Callers who wait: passages, single queries in closed loops and after a silence; and tasks that are handed over."""

import time
from pathlib import Path

from bench import load, texts
from bench.load import Load
from bench.report import Observed, of_load
from bench.scenarios.workload import PASSAGES_PER_REQUEST, Workload
from bench.servers.product import api_alone
from bench.sizes import Sizes

_SUBMITTERS = 64


def passages(workload: Workload, sizes: Sizes) -> Observed:
    """Passages per second, 32 per request over 8 connections, and how long a health check takes meanwhile."""
    plan = workload.passage_load(sizes.passages_s, sizes.warm_s)
    checks = load.start(workload.health_checks(sizes.passages_s))
    result = load.run(plan)
    health = checks.result()
    values = {
        "passages_per_s": PASSAGES_PER_REQUEST * result.rate_per_s,
        "health_p99_ms": health.percentile(99),
        "health_max_ms": health.percentile(100),
    }
    return of_load("passages", result, len(plan.bodies), values)


def queries(connections: int, workload: Workload, sizes: Sizes) -> Observed:
    """Rate and latencies with so many callers at a time."""
    plan = workload.query_load(connections, sizes)
    result = load.run(plan)
    values = {
        f"queries_{connections}_per_s": result.rate_per_s,
        f"queries_{connections}_p50_ms": result.percentile(50),
        f"queries_{connections}_p99_ms": result.percentile(99),
    }
    return of_load(f"{connections} connections", result, len(plan.bodies), values)


def after_silence(workload: Workload, sizes: Sizes) -> Observed:
    """The first query when nobody has asked for a while."""
    time.sleep(sizes.silence_s)
    result = load.run(workload.steady_queries((sizes.silences - 0.5) * sizes.silence_s, 1 / sizes.silence_s))
    return of_load("after silence", result, sizes.silences, {"silence_p50_ms": result.percentile(50)})


def submissions(folder: Path, sizes: Sizes) -> Observed:
    """Tasks that one API process accepts: validated, stored, on disk. No worker helps or hinders."""
    with api_alone(folder) as server:
        bodies = [texts.body(server.model, text) for text in texts.queries(20_000)]
        for seconds in (sizes.warm_s, sizes.load_s):
            result = load.run(Load(f"{server.base_url}/tasks", bodies, connections=_SUBMITTERS, seconds=seconds))
    values = {"submits_per_s": result.rate_per_s, "submits_p99_ms": result.percentile(99)}
    # Equal bodies are tasks of their own here: nothing joins without an Idempotency-Key.
    return of_load("submissions", result, len(result.ms), values)

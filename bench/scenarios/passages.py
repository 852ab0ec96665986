"""Passages by callers who wait, 32 per request over 8 connections, and the health check meanwhile."""

from bench.load.plan import Load
from bench.load.run import Running, run_raw
from bench.scenarios.observed import Observed, of_load
from bench.scenarios.workload import PASSAGES_PER_REQUEST, Workload
from bench.sizes import Sizes

CONNECTIONS = 8
_CHECKS_PER_S = 10.0


def synchronous(workload: Workload, sizes: Sizes) -> Observed:
    """Passages per second, and how long a health check takes under this load."""
    warm = workload.warm_passages(sizes.warm_s)
    load = workload.passage_load(CONNECTIONS, sizes.passages_s, warm)
    health = health_checks(workload, sizes.passages_s)
    try:
        # Never by wrk: it drops what is on its way at the end, which for a slow server is half of the work.
        result = run_raw(load)
    except BaseException:
        if health is not None:
            health.stop()
        raise
    values = {"passages_per_s": PASSAGES_PER_REQUEST * result.rate_per_s}
    if health is not None:
        checks = health.result()
        values |= {"health_p99_ms": checks.p99_ms, "health_max_ms": checks.max_ms}
    return of_load("passages", result, len(load.bodies), values)


def health_checks(workload: Workload, seconds: float) -> Running | None:
    """Ten a second in the background; None where nobody knows what to ask."""
    url = workload.server.health_url
    return Running(Load(url, rate_per_s=_CHECKS_PER_S, seconds=seconds)) if url else None

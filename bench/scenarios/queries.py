"""Single queries by callers who wait: in closed loops, and after a silence."""

import time

from bench.load.plan import Load
from bench.load.run import run_light, run_raw
from bench.scenarios.observed import Observed, of_load
from bench.scenarios.workload import Workload
from bench.sizes import Sizes


def closed_loop(workload: Workload, sizes: Sizes, connections: int) -> Observed:
    """Rate and latencies with so many callers at a time."""
    warm = workload.warm_queries(connections, sizes.warm_s)
    load = workload.query_load(connections, sizes.load_s, warm)
    result = run_light(load)
    name = f"queries_{connections}"
    values = {
        f"{name}_per_s": result.rate_per_s,
        f"{name}_p50_ms": result.p50_ms,
        f"{name}_p99_ms": result.p99_ms,
    }
    return of_load(f"{connections} connections", result, len(load.bodies), values)


def one(workload: Workload, sizes: Sizes) -> Observed:
    """One caller."""
    return closed_loop(workload, sizes, 1)


def thirty_two(workload: Workload, sizes: Sizes) -> Observed:
    """32 callers."""
    return closed_loop(workload, sizes, 32)


def sixty_four(workload: Workload, sizes: Sizes) -> Observed:
    """64 callers."""
    return closed_loop(workload, sizes, 64)


def after_silence(workload: Workload, sizes: Sizes) -> Observed:
    """The first query when nobody has asked for a while."""
    bodies = workload.queries(sizes.silences)
    time.sleep(sizes.silence_s)
    result = run_raw(
        Load(
            workload.server.embeddings_url,
            bodies,
            rate_per_s=1 / sizes.silence_s,
            seconds=(sizes.silences - 0.5) * sizes.silence_s,
        )
    )
    return of_load("after silence", result, len(bodies), {"silence_p50_ms": result.p50_ms})

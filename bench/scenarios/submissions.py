"""How many tasks one API process accepts per second: validated, stored, on disk. No worker helps or hinders."""

from pathlib import Path

from bench import texts
from bench.load.plan import Load
from bench.load.run import run_light
from bench.scenarios.observed import Observed, of_load
from bench.servers.parts import api_alone
from bench.sizes import Sizes

CONNECTIONS = 64


def accepted(folder: Path, sizes: Sizes) -> Observed:
    """Single texts over 64 connections."""
    with api_alone(folder) as (server, _, _):
        bodies = [texts.body(server.model, text) for text in texts.queries(20_000)]
        run_light(Load(server.tasks_url, bodies, connections=CONNECTIONS, seconds=sizes.warm_s))
        result = run_light(Load(server.tasks_url, bodies, connections=CONNECTIONS, seconds=sizes.load_s))
    values = {"submits_per_s": result.rate_per_s, "submits_p99_ms": result.p99_ms}
    # Equal bodies are tasks of their own here: nothing joins without an Idempotency-Key.
    return of_load("submissions", result, result.requests, values)

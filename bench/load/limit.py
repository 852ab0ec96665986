"""What the load generator itself can do: its rate against a server that does nothing."""

import subprocess
import sys

from bench import texts
from bench.load.plan import Load, LoadResult
from bench.load.run import CHECKOUT, run_light

_CONNECTIONS = 64


def measure_limit(seconds: float) -> LoadResult:
    """Queries over 64 connections against the null server, which takes a core of its own."""
    command = [sys.executable, "-m", "bench.load.null_server"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHECKOUT)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        bodies = [texts.body("null", text) for text in texts.queries(2000)]
        url = f"http://127.0.0.1:{port}/v1/embeddings"
        return run_light(Load(url, bodies, connections=_CONNECTIONS, seconds=seconds))
    finally:
        server.terminate()
        server.wait()

"""The usual designs, started here, and a peer that runs already."""

import http.client
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.servers.product import START_TIMEOUT_S
from bench.servers.server import PEER, Server
from stack.ports import answers_ok, free_port
from stack.testing import Process, wait_until

DESIGNS = ("blocking", "to_thread", "locked")
"""Of `bench.baselines`; named here because importing that loads torch."""
_HEALTH_PATHS = ("/health/live", "/health")


@contextmanager
def baseline(design: str, folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """One design of `bench.baselines`; stopped at the end."""
    port = free_port()
    command = [sys.executable, "-m", "bench.baselines", design, "--port", str(port)]
    for name in settings.keys() & {"model", "device"}:
        command += [f"--{name}", str(settings[name])]
    process = Process(design, command, folder)
    try:
        process.launch()
        up = wait_until(
            lambda: answers_ok("127.0.0.1", port, "/health/live") or not process.running, timeout_s=START_TIMEOUT_S
        )
        assert up, design
        assert process.running, f"{design} ended:\n{process.log()[-2000:]}"
        root = f"http://127.0.0.1:{port}"
        yield Server(design, f"{root}/v1", design, health_url=f"{root}/health/live", pids={"api": process.pid})
    finally:
        process.stop()


def peer(url: str, model: str) -> Server:
    """A server that somebody else has started, by its OpenAI base URL."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or http.client.HTTP_PORT
    health = next((path for path in _HEALTH_PATHS if answers_ok(host, port, path)), None)
    return Server(
        PEER, url.rstrip("/"), model, health_url=f"{parts.scheme}://{host}:{port}{health}" if health else None
    )

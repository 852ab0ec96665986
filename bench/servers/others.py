"""Servers of others: the usual designs, started here, and one that runs already."""

import http.client
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.servers.product import START_TIMEOUT_S
from bench.servers.server import PEER, Server
from stack.ports import body_of, free_port
from stack.testing import Process, wait_until
from tasks.encoder.locate import locate
from worker_config.settings import DEFAULT_MODEL

_HEALTH_PATHS = ("/health/live", "/health")


@contextmanager
def baseline(design: str, folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """One design of `bench.baselines`; stopped at the end."""
    port = free_port()
    model = locate(str(settings.get("model", DEFAULT_MODEL)))
    command = [sys.executable, "-m", "bench.baselines", design, "--port", str(port), "--model", str(model)]
    if "device" in settings:
        command += ["--device", str(settings["device"])]
    with started(design, command, port, folder, health_path="/health/live") as server:
        yield server


@contextmanager
def started(
    name: str, command: Sequence[str], port: int, folder: Path, *, health_path: str, model: str | None = None
) -> Iterator[Server]:
    """A server of one process that answers on the port; stopped at the end.

    Args:
        name: in the table.
        command: starts it.
        port: where it will answer.
        folder: for its log, and what it writes into its working folder.
        health_path: answers 200 when it is ready.
        model: the name to send; None: the server's own.
    """
    process = Process(name, list(command), folder)
    try:
        process.launch()
        up = wait_until(
            lambda: body_of("127.0.0.1", port, health_path) is not None or not process.running,
            timeout_s=START_TIMEOUT_S,
        )
        assert up, name
        assert process.running, f"{name} ended:\n{process.log()[-400:]}"
        root = f"http://127.0.0.1:{port}"
        yield Server(name, f"{root}/v1", model or name, health_url=f"{root}{health_path}", pids={"api": process.pid})
    finally:
        process.stop()


def peer(url: str, model: str) -> Server:
    """A server that somebody else has started, by its OpenAI base URL."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or http.client.HTTP_PORT
    health = next((path for path in _HEALTH_PATHS if body_of(host, port, path) is not None), None)
    return Server(
        PEER, url.rstrip("/"), model, health_url=f"{parts.scheme}://{host}:{port}{health}" if health else None
    )

"""embedq itself: the local stack as `embedq up` starts it, or Redis and one API process."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.report import PRODUCT
from bench.servers.server import Server
from stack.ports import free_port
from stack.redis_server import default_maxmemory_bytes
from tests.processes import Process, RedisServer, Roles
from worker_config.settings import DEFAULT_MODEL, load_settings

_OF_THE_MODEL = {"model", "served_name", "trust_remote_code", "device", "compute", "precision", "threads"}
_NO_LIMIT: dict[str, Any] = {"max_backlog_s": 86_400, "max_backlog_bulk_s": 31_536_000}


def model_settings() -> dict[str, Any]:
    """Which model is measured, and how it computes: what the environment and `.env` say, for every process."""
    settings = load_settings()
    return settings.model_dump(include=_OF_THE_MODEL & settings.model_fields_set, exclude_none=True)


@contextmanager
def product(folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """The running stack, with its data in `folder`, files of users included; stopped at the end."""
    port = free_port()
    command = [sys.executable, "-m", "stack", "--port", str(port), "--data", str(folder / "data")]
    stack = Process("stack", command, folder, **settings)
    stack.stdout_file = folder / "stack.out"
    began = time.perf_counter()
    stack.launch()
    try:
        stack.wait_while_running(lambda: b"ready http" in stack.stdout_file.read_bytes(), "it was ready")
        root = f"http://127.0.0.1:{port}"
        yield Server(
            name=PRODUCT,
            base_url=f"{root}/v1",
            model=_served_name(settings),
            health_url=f"{root}/health/live",
            pids=_pids(stack),
            start_s=time.perf_counter() - began,
        )
    finally:
        stack.stop()


@contextmanager
def api_alone(folder: Path) -> Iterator[Server]:
    """A web tier without a worker, that accepts everything there is room for."""
    redis = RedisServer(folder / "redis", unix_socket=True, maxmemory_bytes=default_maxmemory_bytes())
    try:
        redis.start()
        with Roles(folder, redis.url) as roles:
            api = roles.api(**_NO_LIMIT)
            yield Server(PRODUCT, f"{api.base_url}/v1", DEFAULT_MODEL, f"{api.base_url}/health/live")
    finally:
        redis.stop()


def _pids(stack: Process) -> Mapping[str, int]:
    """Of the processes that do the work: `api`, `worker` (the one with the model), `documents`, `redis`."""
    found = {}
    for child in psutil.Process(stack.pid).children():
        command = child.cmdline()
        if "tasks.worker" in command:
            found["worker"] = next((inner.pid for inner in child.children()), child.pid)
        elif "tasks.ingestion" in command:
            found["documents"] = next((inner.pid for inner in child.children()), child.pid)
        else:
            found["api" if "api" in command else "redis"] = child.pid
    return found


def _served_name(settings: Mapping[str, Any]) -> str:
    """The name under which clients know the model."""
    model = str(settings.get("model", DEFAULT_MODEL))
    return str(settings.get("served_name", "")).split(",")[0] or (Path(model).name if Path(model).is_dir() else model)

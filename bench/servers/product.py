"""embedq itself: the local stack as `embedq up` starts it."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from bench.servers.server import PRODUCT, Server
from stack.ports import free_port
from stack.testing import Process, wait_until
from worker_config.settings import DEFAULT_MODEL

START_TIMEOUT_S = 600.0


class Stack(Process):
    """`python -m stack` on a free port, with its data in `folder`, files of users included."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "stack", "--port", str(self.port), "--data", str(folder / "data")]
        super().__init__("stack", command, folder, **settings)
        self.stdout_file = folder / "stack.out"

    def start(self) -> float:
        """Starts it; seconds until it said that it is ready."""
        began = time.perf_counter()
        self.launch()
        wait_until(self._ready_or_dead, timeout_s=START_TIMEOUT_S, message="the local stack became ready")
        if not self.running:
            raise AssertionError(f"the local stack ended:\n{self.log()[-2000:]}")
        return time.perf_counter() - began

    def pids(self) -> Mapping[str, int]:
        """Of the processes that do the work: `api`, `worker` (the one with the model), `documents`, `redis`."""
        found = {}
        for child in psutil.Process(self.pid).children():
            command = child.cmdline()
            if "tasks.worker" in command:
                found["worker"] = next((inner.pid for inner in child.children()), child.pid)
            elif "tasks.ingestion" in command:
                found["documents"] = child.pid
            else:
                found["api" if "api" in command else "redis"] = child.pid
        return found

    def _ready_or_dead(self) -> bool:
        return b"ready http" in self.stdout_file.read_bytes() or not self.running


@contextmanager
def product(folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """The running stack; stopped at the end."""
    stack = Stack(folder, **settings)
    try:
        start_s = stack.start()
        root = f"http://127.0.0.1:{stack.port}"
        yield Server(
            name=PRODUCT,
            base_url=f"{root}/v1",
            model=served_name(settings),
            health_url=f"{root}/health/live",
            pids=stack.pids(),
            start_s=start_s,
        )
    finally:
        stack.stop()


def served_name(settings: Mapping[str, Any]) -> str:
    """The name under which clients know the model."""
    model = str(settings.get("model", DEFAULT_MODEL))
    return str(settings.get("served_name", "")).split(",")[0] or (Path(model).name if Path(model).is_dir() else model)

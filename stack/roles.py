"""The roles of a local stack: Redis unless one runs already, model workers, the documents worker, the web tier."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stack.redis_server import Endpoint, answers_ping, default_maxmemory_bytes, find_server, server_command
from worker_config.settings import child_environment

REDIS_STAGE, WORKER_STAGE, API_STAGE = range(3)
REDIS_GRACE_S = 10.0
WORKER_GRACE_S = 30.0
API_GRACE_S = 10.0
"""Twice what the web tier gives to running requests."""


@dataclass(frozen=True, slots=True)
class Role:
    """One process of the stack, as data: what to start, and how to tell that it is well.

    Attributes:
        name: shown before each of its log lines.
        command: program and arguments.
        environment: complete; nothing is added.
        stage: lower stages are started first and stopped last; one stage starts when the one below is up.
        grace_s: from SIGTERM to SIGKILL.
        is_up: whether the next stage may start.
        alive_file: touched every second by a process that does not hang; None: hangs are not detected.
        hung_after_s: a process counts as hung when its alive file was not touched for so long.
        keeps_open: file descriptors that the process inherits.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    stage: int
    grace_s: float
    is_up: Callable[[], bool] = lambda: True
    alive_file: Path | None = None
    hung_after_s: float = 30.0
    keeps_open: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Places:
    """Settings that all roles share, by the same names. `storage_url` None: as the environment says."""

    redis_url: str = field(repr=False)
    storage_url: str | None


def redis_role(endpoint: Endpoint, data: Path, lock: int) -> Role:
    """Redis on `endpoint`, its files in `data`; it holds the lock of the data folder as long as it runs.

    Raises:
        StackError: there is no Redis program.
    """
    data.mkdir(mode=0o700, exist_ok=True)  # it holds what people submit
    command = server_command(find_server(), endpoint, data, maxmemory_bytes=default_maxmemory_bytes())
    return Role(
        name="redis",
        command=tuple(command),
        environment=child_environment(),
        stage=REDIS_STAGE,
        grace_s=REDIS_GRACE_S,
        is_up=lambda: answers_ping(endpoint),
        keeps_open=(lock,),
    )


def worker_roles(count: int, places: Places, run_dir: Path) -> list[Role]:
    """Model workers, each with a folder of its own for its ready and alive files."""
    roles = []
    for number in range(1, count + 1):
        name = "worker" if count == 1 else f"worker-{number}"
        roles.append(_worker(name, "tasks.worker", places, run_dir))
    return roles


def documents_role(places: Places, run_dir: Path) -> Role:
    """The documents worker."""
    return _worker("documents-worker", "tasks.ingestion", places, run_dir)


def _worker(name: str, module: str, places: Places, run_dir: Path) -> Role:
    folder = run_dir.resolve() / name
    folder.mkdir(parents=True, exist_ok=True)
    return Role(
        name=name,
        command=(sys.executable, "-m", module),
        environment=child_environment(redis_url=places.redis_url, storage_url=places.storage_url, run_dir=folder),
        stage=WORKER_STAGE,
        grace_s=WORKER_GRACE_S,
        alive_file=folder / "alive",
    )


def api_role(port: int, places: Places) -> Role:
    """The web tier on `port`."""
    return Role(
        name="api",
        command=(sys.executable, "-m", "api"),
        environment=child_environment(redis_url=places.redis_url, storage_url=places.storage_url, port=port),
        stage=API_STAGE,
        grace_s=API_GRACE_S,
    )

"""What a local stack consists of: Redis unless there is one already, workers, the web tier."""

import sys
from dataclasses import dataclass
from pathlib import Path

from stack.redis_server import Endpoint, answers_ping, default_maxmemory_bytes, find_server, server_command
from stack.role import Role
from worker_config.settings import child_environment

REDIS_STAGE, WORKER_STAGE, API_STAGE = range(3)
REDIS_GRACE_S = 10.0
WORKER_GRACE_S = 30.0
API_GRACE_S = 10.0
"""Twice what the web tier gives to running requests."""


@dataclass(frozen=True, slots=True)
class Places:
    """What all roles share: the settings of the same names. `storage_url` None: as the environment says."""

    redis_url: str
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
    return _worker("documents-worker", "tasks.documents_worker", places, run_dir)


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

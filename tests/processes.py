"""Real processes for tests: Redis, the web tier and the workers, each stopped by its own pid.

`Roles` starts what a test needs against one Redis and stops all of it. Logs go to files, which `conftest` shows when a
test fails. Settings are passed as field names of `worker_config.settings.Settings`.
"""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import httpx
import psutil
import redis

from stack.ports import free_port
from stack.redis_server import Endpoint, find_server, server_command
from tests.source_tree import CHECKOUT
from worker_config.process_exit_codes import OVERDUE_EXIT_CODE
from worker_config.redis_connection import Sentinels

__all__ = ["CHECKOUT", "free_port"]

T = TypeVar("T")

PATIENCE_S = 120
"""With all that a test waits for. A wait ends with its event, so patience costs nothing where all is well."""
STOP_TIMEOUT_S = 60

NO_AUTHORITIES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients on loopback without TLS: httpx would read the system's certificates for each, 25 ms."""


def wait_until(condition: Callable[[], T | None], *, timeout_s: float = PATIENCE_S, message: str = "") -> T:
    """The first truthy value of `condition`, polled; fails with `message` when there is none in time."""
    began = time.monotonic()
    while not (value := condition()):
        time.sleep(_pause(began, timeout_s, f"{message or condition}; last value {value!r}"))
    return value


async def eventually(
    condition: Callable[[], Awaitable[T | None]], *, timeout_s: float = PATIENCE_S, message: str = ""
) -> T:
    began = time.monotonic()
    while not (value := await condition()):
        pause = _pause(began, timeout_s, f"{message or condition}; last value {value!r}")
        await asyncio.sleep(pause)
    return value


def _pause(began: float, timeout_s: float, message: str) -> float:
    """A long wait is polled ever more seldom: most questions cost what is waited for a part of its processor."""
    waited = time.monotonic() - began
    assert waited <= timeout_s, f"waited {timeout_s} s: {message}"
    return min(0.25, max(0.01, waited / 10))


class Process:
    """One child process, its environment free of the developer's own settings, its output in `log_file`.

    Attributes:
        popen: starts it, as `subprocess.Popen` does.
    """

    popen: ClassVar[Callable[..., Any]] = staticmethod(subprocess.Popen)

    def __init__(self, name: str, command: list[str], folder: Path, **settings: Any) -> None:
        self.name = name
        self.command = command
        self.folder = folder
        self.settings = settings
        self.log_file = self.stdout_file = folder / f"{name}.log"
        self._process: Any = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None, f"{self.name} was never started"
        return int(self._process.pid)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Starts the process and returns at once."""
        assert not self.running, f"{self.name} runs already"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EMBEDQ_")}
        settings = {"storage_url": self.folder / ".embedq" / "storage"} | self.settings
        chosen = {f"EMBEDQ_{name.upper()}": str(value) for name, value in settings.items()}
        with self.log_file.open("ab") as log, self.stdout_file.open("ab") as stdout:
            self._process = self.popen(
                self.command,
                cwd=self.folder,  # not the checkout: a developer's .env must not reach the test
                env={**inherited, "PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1", **chosen},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                start_new_session=True,  # Ctrl-C in pytest reaches pytest, whose fixtures stop this in order
            )

    def start(self) -> Self:
        self.launch()
        self.wait_while_running(self._answers, "answering")
        return self

    def _answers(self) -> bool:
        return True

    def send(self, number: int) -> None:
        """Sends a signal; to a process that has exited, nothing happens."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code: negative when a signal ended it."""
        assert self._process is not None
        return int(self._process.wait(timeout_s))

    def kill(self) -> None:
        """`kill -9` of this one process; its children are left to their own devices."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int | None:
        """SIGTERM, then SIGKILL of the whole process group if that does not help. None if it was never started."""
        if self._process is None:
            return None
        self.send(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait()
        with contextlib.suppress(ProcessLookupError):  # what it left behind, and itself if it hangs
            os.killpg(self._process.pid, signal.SIGKILL)
        return self.wait()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def wait_while_running(self, condition: Callable[[], T | None], what: str) -> T:
        """`wait_until`, but fails at once, with the log, when the process exits."""

        def check() -> T | None:
            assert self.running, f"{self.name} exited with {self.wait()} before {what}:\n{self.log()[-4000:]}"
            return condition()

        return wait_until(check, message=f"{self.name}: {what}")


class RedisServer(Process):
    """A real Redis on a folder of its own; after `kill` or `stop`, `start` runs it again on the same data and port."""

    def __init__(
        self,
        folder: Path,
        *,
        appendfsync: str = "always",
        unix_socket: bool = False,
        maxmemory_bytes: int = 256 * 2**20,
        name: str = "redis",
        options: Sequence[str] = (),
    ) -> None:
        self.endpoint = Endpoint(socket_path=folder / "r.sock") if unix_socket else Endpoint(port=free_port())
        command = server_command(
            find_server(), self.endpoint, folder, maxmemory_bytes=maxmemory_bytes, appendfsync=appendfsync
        )
        super().__init__(name, [*command, *options], folder)

    @property
    def url(self) -> str:
        return self.endpoint.url

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url)

    def _answers(self) -> bool:
        with self.client() as client, contextlib.suppress(redis.RedisError):
            return bool(client.ping())
        return False


class RedisGroup:
    """A master, a replica and a Sentinel that fails over by itself. A context manager."""

    SERVICE = "ledger"

    def __init__(self, folder: Path) -> None:
        options = ("--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0")
        self._servers = [RedisServer(folder / name, name=name, options=options) for name in ("redis-a", "redis-b")]
        self._sentinel = RedisServer(folder / "sentinel", name="sentinel")
        settings = folder / "sentinel" / "sentinel.conf"  # the Sentinel itself rewrites it
        settings.write_text(f"bind 127.0.0.1\nport {self._sentinel.endpoint.port}\n")
        self._sentinel.command = [str(find_server()), str(settings), "--sentinel"]

    @property
    def named(self) -> Sentinels:
        return Sentinels(self.SERVICE, (f"redis://127.0.0.1:{self._sentinel.endpoint.port}",))

    @property
    def settings(self) -> dict[str, str]:
        return {"redis_sentinels": ",".join(self.named.urls), "redis_service": self.SERVICE}

    @property
    def master(self) -> RedisServer:
        with self._sentinel.client() as client:
            port = client.sentinel_get_master_addr_by_name(self.SERVICE)[1]
        return next(server for server in self._servers if server.endpoint.port == port)

    @property
    def replica(self) -> RedisServer:
        master = self.master
        return next(server for server in self._servers if server is not master)

    def start(self) -> Self:
        """Starts all and returns when a failover would succeed."""
        for process in (*self._servers, self._sentinel):
            process.start()
        self._meet(self._servers[0])
        self.rejoin()
        return self

    def fail_over(self) -> RedisServer:
        """Kills the master, and returns the new one when the Sentinel names it."""
        former = self.master
        former.kill()
        wait_until(lambda: self.master is not former, message="a new master")
        return self.master

    def rejoin(self) -> None:
        """Makes the other server a replica of the present master, and waits until it could take over."""
        master, replica = self.master, self.replica
        if not replica.running:
            replica.start()
        with replica.client() as client:
            client.replicaof("127.0.0.1", master.endpoint.port)
        wait_until(lambda: _is_linked(replica), message="a replica that follows")
        # A Sentinel does this by itself, in 20 s: it looks at servers every 10 s. One that it has just met, at once.
        with self._sentinel.client() as client:
            client.sentinel_remove(self.SERVICE)
        self._meet(master)
        wait_until(self.ready, message="a replica that could take over")

    def stop(self) -> None:
        """Stops all, the Sentinel first: it would fail over."""
        for process in (self._sentinel, *self._servers):
            process.stop()

    def ready(self) -> bool:
        """Whether a failover would succeed."""
        replica = self.replica
        if not replica.running or not _is_linked(replica):
            return False
        with self._sentinel.client() as client:
            replicas = client.sentinel_slaves(self.SERVICE)
            state = client.sentinel_master(self.SERVICE)
        fine = [one for one in replicas if one["flags"] == "slave" and one["master-link-status"] == "ok"]
        return bool(fine) and state["flags"] == "master"

    def _meet(self, master: RedisServer) -> None:
        with self._sentinel.client() as client:
            client.sentinel_monitor(self.SERVICE, "127.0.0.1", master.endpoint.port, 1)
            client.sentinel_set(self.SERVICE, "down-after-milliseconds", 500)
            client.sentinel_set(self.SERVICE, "failover-timeout", 5000)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _is_linked(replica: RedisServer) -> bool:
    with replica.client() as client:
        return bool(client.info("replication").get("master_link_status") == "up")


class WorkerProcess(Process):
    """A worker (`python -m {module}`), with the fake encoder unless `compute` says otherwise."""

    def __init__(
        self, folder: Path, redis_url: str, *, name: str = "worker", module: str = "tasks.worker", **settings: Any
    ) -> None:
        self.run_dir = folder / f"{name}-run"
        merged = {"compute": "fake", "redis_url": redis_url, "run_dir": self.run_dir} | settings
        super().__init__(name, [sys.executable, "-m", module], folder, **merged)

    def start(self) -> Self:
        """Starts the worker and returns when its model is loaded."""
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self) -> dict[str, Any]:
        return self.wait_while_running(self._ready, "its model was ready")

    @property
    def child_pid(self) -> int:
        """The pid of the process that holds the model; changes when that process is replaced."""
        return wait_until(self._living_children, message="the worker has no child")[0]

    def kill_child(self) -> int:
        """`kill -9` of the process that holds the model, which is gone afterwards; its pid."""
        pid = self.child_pid
        os.kill(pid, signal.SIGKILL)
        self.await_end_of(pid)
        return pid

    def await_end_of(self, child_pid: int) -> None:
        """Returns when a child that was killed is gone, which takes a moment."""
        wait_until(lambda: child_pid not in self._living_children(), message="the end of the killed child")

    def _ready(self) -> dict[str, Any] | None:
        file = self.run_dir / "ready"
        if not file.exists():  # asked a hundred times in a start; the children are found among all processes
            return None
        found: dict[str, Any] = json.loads(file.read_text())
        # A child that was killed leaves its file behind; only a living child of this parent counts.
        return found if found.get("pid") in {*self._living_children(), self.pid} else None

    def _living_children(self) -> list[int]:
        """Without zombies: a child that was killed a moment ago and that the parent has not waited for yet."""
        living = []
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    living.append(int(child.pid))
        return living


class ApiProcess(Process):
    """The web tier (`python -m api`) on a free loopback port."""

    def __init__(self, folder: Path, redis_url: str, *, name: str = "api", **settings: Any) -> None:
        merged = {"redis_url": redis_url, "host": "127.0.0.1", "port": free_port()} | settings
        super().__init__(name, [sys.executable, "-m", "api"], folder, **merged)
        self.base_url = f"http://127.0.0.1:{merged['port']}"

    def wait_ready(self) -> None:
        self.wait_while_running(lambda: self._answers("/health/ready"), "answering /health/ready")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.base_url, timeout=60, verify=NO_AUTHORITIES)

    def _answers(self, path: str = "/health/live") -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(self.base_url + path, timeout=5, verify=NO_AUTHORITIES).is_success
        return False


class Roles:
    """Workers and web tiers against one Redis. A context manager: at its end everything it started is stopped.

    `shared`: settings of all of them.
    """

    def __init__(self, folder: Path, redis_url: str, **shared: Any) -> None:
        self.folder = folder
        self.redis_url = redis_url
        self.shared = shared
        self.processes: list[Process] = []

    def worker(self, *, start: bool = True, **settings: Any) -> WorkerProcess:
        """A worker, ready unless `start` is False."""
        values = {"name": f"worker{len(self.processes)}", "redis_url": self.redis_url} | self.shared | settings
        worker = WorkerProcess(self.folder, **values)
        self.processes.append(worker)
        return worker.start() if start else worker

    def documents(self, module: str = "tasks.ingestion", **settings: Any) -> WorkerProcess:
        """A documents worker, ready; `module`: with other jobs."""
        return self.worker(module=module, **settings)

    def api(self, *, start: bool = True, **settings: Any) -> ApiProcess:
        """A web tier, answering unless `start` is False."""
        values = {"name": f"api{len(self.processes)}", "redis_url": self.redis_url} | self.shared | settings
        api = ApiProcess(self.folder, **values)
        self.processes.append(api)
        return api.start() if start else api

    def stop(self) -> None:
        """Stops everything. All are asked before one is waited for: a stop takes about a second each.

        Fails when one had to be killed, or killed itself because it took too long.
        """
        started = [process for process in self.processes if process.running]
        for process in started:
            process.send(signal.SIGTERM)
        late = [process.name for process in started if process.stop() in {-signal.SIGKILL, OVERDUE_EXIT_CODE}]
        assert not late, f"{late} did not stop in time"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

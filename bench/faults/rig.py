"""The service that is injured: a process of each role on a Redis and a storage of its own, and what is done to it."""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.faults.account import DIMENSION
from stack.link import Link
from stack.testing import ApiProcess, Process, RedisGroup, RedisServer, Roles, WorkerProcess, wait_until
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.ledger.redis_keys import DOCUMENTS

_STORAGE_BYTES = 256 * 2**20
_VOLUME_PROGRAMS = ("mkfs.ext4", "mount", "umount", "fsfreeze")
_JOB_TIMEOUT_S = 60.0
_CLOCK = Path(__file__).with_name("clock.c")
_OFFSET = struct.Struct("=q")
HOUR_S = 3600
SERVED_NAME = "trial"
SETTINGS: dict[str, Any] = {
    "served_name": SERVED_NAME,
    "fake_dimension": DIMENSION,
    "fake_tokens_per_s": 4_000,  # so that there is always something at work when a fault comes
}


class Volume:
    """The place of the storage: a file system of its own where this user may mount one. A context manager.

    Attributes:
        folder: for `EMBEDQ_STORAGE_URL`.
        mounted: whether it is one; if not, it can be neither full nor read-only nor slow.
    """

    def __init__(self, folder: Path) -> None:
        self._root = folder / "volume"
        self._image = folder / "volume.img"
        self._ballast = self._root / "ballast"
        self.folder = self._root / "storage"
        self.mounted = False

    def fill(self) -> None:
        """No block is left."""
        with self._ballast.open("wb", buffering=0) as file:
            for size in (2**20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
            os.fsync(file.fileno())

    def empty(self) -> None:
        """There is room again."""
        self._ballast.unlink()

    def set_read_only(self, *, really: bool) -> None:
        """Waits until no file is open for writing, as the kernel demands."""
        mode = "remount,ro" if really else "remount,rw"
        command = ["mount", "-o", mode, str(self._root)]
        wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, message=mode)

    def freeze(self, seconds: float) -> None:
        """Whoever writes waits for so long."""
        subprocess.run(["fsfreeze", "--freeze", self._root], check=True)
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", self._root], check=True)

    def __enter__(self) -> Self:
        self._root.mkdir(parents=True)
        if os.geteuid() == 0 and all(map(shutil.which, _VOLUME_PROGRAMS)):
            with self._image.open("wb") as file:
                file.truncate(_STORAGE_BYTES)
            made = subprocess.run(["mkfs.ext4", "-q", self._image], capture_output=True, check=False)
            mounted = subprocess.run(["mount", "-o", "loop", self._image, self._root], capture_output=True, check=False)
            self.mounted = made.returncode == mounted.returncode == 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", self._root], check=False)


class Rig:
    """Everything that one caller needs. A context manager: at its end all of it is stopped.

    Args:
        folder: for files and logs.
        settings: of all roles, beside `SETTINGS`.

    Attributes:
        volume: the storage.
        redis: the server that the roles started with.
        apis: where callers may call; two while `second` is open.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.volume = Volume(folder)
        self.redis = RedisServer(folder / "redis")
        self.settings = {**SETTINGS, "storage_url": str(self.volume.folder), **settings}
        self.apis: list[ApiProcess] = []
        self._open = contextlib.ExitStack()

    @property
    def redis_url(self) -> str:
        """As the roles are told."""
        return self.redis.url

    def addresses(self) -> Sequence[str]:
        """Where callers may call."""
        return [api.base_url for api in self.apis]

    def _start_redis(self, stack: contextlib.ExitStack) -> None:
        """And what stands between it and the roles."""
        stack.callback(self.redis.stop)
        self.redis.start()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.volume)
            self._start_redis(stack)
            self.roles = Roles(self.folder, self.redis_url)
            stack.callback(self._stop_roles)
            self.api = self.roles.api(start=False, **self.settings)
            self.worker = self.roles.worker(start=False, **self.settings)
            self.documents = self.roles.worker(start=False, module="tasks.ingestion", **self.settings)
            for process in (self.api, self.worker, self.documents):
                self._wrap(process)
                process.launch()
            self.apis.append(self.api)
            self.await_ready()
            self._open = stack.pop_all()
        return self

    def _wrap(self, process: Process) -> None:
        """What a process is started under."""

    def await_ready(self) -> None:
        """Returns when every role is up, as after its start."""
        self.api.wait_ready()
        self.worker.wait_ready()
        self.documents.wait_ready()

    def await_job(self) -> None:
        """Returns while the documents worker has a job. Jobs are short, so this looks all the time."""
        until = now() + _JOB_TIMEOUT_S
        with self.redis.client() as client:
            while not Ledger(client).run(overview(DOCUMENTS))[DOCUMENTS].leases:
                assert now() < until, "no job of the documents worker"
                time.sleep(0.002)

    def jobs_taken(self) -> int:
        """How many jobs documents workers have taken so far."""
        return self._counters(DOCUMENTS).get("claims", 0)

    def committed(self) -> int:
        """How many vectors the ledger has taken so far. `/metrics` shows the same a moment later."""
        return self._counters(SERVED_NAME).get("committed_items", 0)

    def _counters(self, queue: str) -> Mapping[str, int]:
        with self.redis.client() as client:
            return Ledger(client).run(overview(queue))[queue].counters

    @contextlib.contextmanager
    def second(self) -> Iterator[tuple[ApiProcess, WorkerProcess]]:
        """One more API and one more model worker, for the time of the block."""
        api, worker = self.roles.api(**self.settings), self.roles.worker(**self.settings)
        self.apis.append(api)
        try:
            yield api, worker
        finally:
            self.apis.remove(api)
            for process in (api, worker):
                process.stop()
                self.roles.processes.remove(process)

    def _stop_roles(self) -> None:
        for process in self.roles.processes:
            with contextlib.suppress(Exception):  # the trial is over; what does not stop is killed
                process.stop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


class LinkedRig(Rig):
    """Redis behind an address that stays: a link to one of two servers."""

    def _start_redis(self, stack: contextlib.ExitStack) -> None:
        super()._start_redis(stack)
        self.link = stack.enter_context(Link(self.redis.endpoint.port))
        self.other = RedisServer(self.folder / "other").start()
        stack.callback(self.other.stop)
        follow(self.other, self.redis)

    @property
    def redis_url(self) -> str:
        """The link's."""
        return self.link.url

    def fail_over(self) -> None:
        """The replica becomes the master; the former master stays, as its replica, with everybody who is connected."""
        former, to = self.redis, self.other
        with former.client() as one, to.client() as other:
            one.execute_command("WAIT", 1, 1000)
            other.replicaof("NO", "ONE")
            one.replicaof("127.0.0.1", to.endpoint.port)
        self.link.target = to.endpoint.port
        self.redis, self.other = to, former


class SentinelRig(Rig):
    """A master, a replica and a Sentinel; what is accepted is on both."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, redis_ack="replica")
        self.group = RedisGroup(folder)
        self._rejoining: threading.Thread | None = None

    @property
    def redis_url(self) -> str:
        """The Sentinel's."""
        return self.group.url

    def _start_redis(self, stack: contextlib.ExitStack) -> None:
        stack.callback(self.group.stop)
        self.group.start()
        self.redis = self.group.master

    def fail_over(self) -> None:
        """Kills the master. The killed server comes back as a replica meanwhile, as its supervisor would have it."""
        self.redis = self.group.fail_over()
        self._rejoining = threading.Thread(target=self.group.rejoin)
        self._rejoining.start()

    def await_ready(self) -> None:
        """And a replica could take over."""
        if self._rejoining is not None:
            self._rejoining.join()
        super().await_ready()


class ClockRig(Rig):
    """Redis, the API and the workers have wall clocks of their own, which can be set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, result_ttl_s=4 * HOUR_S)  # or what has ended expires when the clock goes forward
        self._library = folder / "clock.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self._library, _CLOCK], check=True)

    def _start_redis(self, stack: contextlib.ExitStack) -> None:
        self._wrap(self.redis)
        super()._start_redis(stack)

    def _wrap(self, process: Process) -> None:
        clock = self._clock(process)
        clock.write_bytes(_OFFSET.pack(0))
        process.command = [
            "env",
            f"LD_PRELOAD={self._library}",
            f"CLOCK_OFFSET_FILE={clock}",
            *process.command,
        ]

    def set_clocks(self, seconds: int, *processes: Process) -> None:
        """From now on their clocks are off by so much."""
        for process in processes:
            with self._clock(process).open("r+b") as file:  # in place: the processes have mapped it
                file.write(_OFFSET.pack(seconds))

    def _clock(self, process: Process) -> Path:
        return self.folder / f"{process.name}.clock"


def follow(replica: RedisServer, master: RedisServer) -> None:
    """`replica` has all that `master` has, and hears of each change."""
    with replica.client() as client:
        client.replicaof("127.0.0.1", master.endpoint.port)
        wait_until(lambda: client.info("replication").get("master_link_status") == "up", message="a replica")


def stop_group(process: Process) -> None:
    """SIGSTOP for the process and its children."""
    os.killpg(process.pid, signal.SIGSTOP)


def continue_group(process: Process) -> None:
    """The end of `stop_group`."""
    os.killpg(process.pid, signal.SIGCONT)


def copy_of(redis: RedisServer, to: Path) -> None:
    """A copy of what Redis has on disk at this moment, as a snapshot of its volume."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(redis.folder, to, ignore=shutil.ignore_patterns("*.log"))


def put_back(redis: RedisServer, copy: Path | None) -> None:
    """Redis, which is down, has what the copy has, or nothing."""
    for path in redis.folder.iterdir():
        if path != redis.log_file:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if copy is not None:
        shutil.copytree(copy, redis.folder, dirs_exist_ok=True)


def now() -> float:
    """The clock of the trials, in seconds."""
    return time.monotonic()

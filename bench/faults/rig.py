"""The service that is injured: a process of each role on a Redis and a storage of its own."""

import contextlib
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tests.link import Link
from tests.processes import RedisGroup, RedisServer, Roles, wait_until

DIMENSION = 32
SERVED_NAME = "trial"
_SETTINGS: dict[str, Any] = {
    "served_name": SERVED_NAME,
    "fake_dimension": DIMENSION,
    "fake_tokens_per_s": 4_000,  # so that there is always something at work when a fault comes
}


class Rig(contextlib.ExitStack):
    """Everything that callers need. A context manager: at its end all of it is stopped.

    Attributes:
        redis: the server that is the master.
        storage: the folder of `EMBEDQ_STORAGE_URL`.
    """

    more_settings: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.storage = folder / "volume"
        self.settings = {**_SETTINGS, "storage_url": str(self.storage / "storage"), **self.more_settings}

    def __enter__(self) -> Self:
        try:
            self.storage.mkdir()
            self._prepare()
            self.roles = Roles(self.folder, self._start_redis())
            self.callback(self._stop_roles)
            self.api, self.worker = self.roles.api(**self.settings), self.roles.worker(**self.settings)
            self.documents = self.roles.documents(**self.settings)
            self.api.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def await_ready(self) -> None:
        """Returns when every role is up, as after its start."""
        for process in (self.api, self.worker, self.documents):
            process.wait_ready()

    def committed(self) -> int:
        """How many vectors the ledger has taken so far."""
        with self.redis.client() as client:
            return Ledger(client).run(overview(SERVED_NAME))[SERVED_NAME].counters.get("committed_items", 0)

    def _prepare(self) -> None:
        """What the storage needs."""

    def _start_redis(self) -> str:
        """And what stands between it and the roles; its URL as these are told."""
        self.redis = RedisServer(self.folder / "redis")
        self.callback(self.redis.stop)
        return self.redis.start().url

    def _stop_roles(self) -> None:
        for process in self.roles.processes:
            with contextlib.suppress(Exception):  # the trial is over; what does not stop is killed
                process.stop()


class VolumeRig(Rig):
    """The storage is a file system of its own: it can be full or read-only. Mounting it needs root."""

    def _prepare(self) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", self.storage], check=True)
        self.callback(lambda: subprocess.run(["umount", "--lazy", self.storage], check=False))

    def fill(self) -> None:
        """No block is left."""
        with (self.storage / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        """There is room again."""
        (self.storage / "ballast").unlink()

    def remount(self, mode: str) -> None:
        """`ro` or `rw`. Waits until no file is open for writing, as the kernel demands."""
        command = ["mount", "-o", f"remount,{mode}", str(self.storage)]
        wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, message=mode)


class LinkedRig(Rig):
    """A link stands between Redis and the roles."""

    def _start_redis(self) -> str:
        super()._start_redis()
        self.link = self.enter_context(Link(self.redis.endpoint.port))
        return self.link.url


class SentinelRig(Rig):
    """A master, a replica and a Sentinel; what is accepted is on both."""

    more_settings = {"redis_ack": "replica"}  # noqa: RUF012 - as above

    def _start_redis(self) -> str:
        self.group = RedisGroup(self.folder)
        self.callback(self.group.stop)
        self.redis = self.group.start().master
        self.settings |= self.group.settings
        return "redis://master/0"  # Sentinels say where that is

    def fail_over(self) -> None:
        """Kills the master. The killed server comes back as a replica meanwhile, as its supervisor would have it."""
        self.redis = self.group.fail_over()
        self._rejoining = threading.Thread(target=self.group.rejoin)
        self._rejoining.start()

    def await_ready(self) -> None:
        """And a replica could take over."""
        self._rejoining.join()
        super().await_ready()

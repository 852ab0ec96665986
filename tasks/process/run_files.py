"""The files that a worker leaves for probes, and its two processes for each other.

`ready`: a model is loaded. `alive`: the parent's loop turns. `beat`: the child's heartbeat turns. `failure`: why a
child left. `dropped`: how many messages were no bells. `worker`: who uses the folder, or did. `liveness.py` decides
what the times of the files mean.
"""

import errno
import fcntl
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

import orjson

from worker_config.settings import CONFIGURATION_EXIT_CODE


class RunFiles:
    """The files in one worker's `EMBEDQ_RUN_DIR`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = folder / "ready"
        self._alive = folder / "alive"
        self._beat = folder / "beat"
        self._failure = folder / "failure"
        self._dropped = folder / "dropped"
        self._worker = folder / "worker"
        self._lock: IO[bytes] | None = None
        self._said = b""
        """What its ready file says; b"": there is none."""

    def take(self) -> None:
        """Makes the folder this process's own until it ends, and empties it.

        Raises:
            OSError: the folder cannot be made, or another worker uses it.
        """
        self._take_lock()
        self.clear()

    def _take_lock(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self._folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another worker uses this folder; give each worker its own") from None

    def succeed(self, worker_id: str) -> str:
        """Notes who uses the folder from now on; who did before, or "". After `take` all of its processes are dead."""
        try:
            before = self._worker.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = ""
        self._worker.write_text(worker_id, encoding="utf-8")
        return before

    def clear(self) -> None:
        """Makes the folder and removes what an earlier process left there."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self._ready, self._alive, self._beat, self._failure, self._dropped):
            path.unlink(missing_ok=True)

    def set_ready(self, facts: Mapping[str, object]) -> None:
        """Says that this process has a loaded model. `facts` are for people who look."""
        said = orjson.dumps({"pid": os.getpid(), **facts})
        _replace(self._ready, said)
        self._said = said  # last: the heartbeat writes it too

    def clear_ready(self) -> None:
        """Says that no model is loaded, and that no heartbeat is to be waited for."""
        self._said = b""
        self._ready.unlink(missing_ok=True)
        self.clear_beat()

    def touch_alive(self) -> None:
        """The parent's event loop turned.

        A cleaner of temporary files removes what is old, or all of it: nothing here gets old, and what is gone is made
        again.
        """
        if self._lock is not None:
            if os.fstat(self._lock.fileno()).st_nlink == 0:
                self._take_lock()
            os.utime(self._lock.fileno())
        self._touch(self._alive)

    def touch_beat(self) -> None:
        """The child's heartbeat turned. Its other file stays as young, as in `touch_alive`."""
        self._touch(self._beat)
        if self._said and not self._ready.exists():
            _replace(self._ready, self._said)
        elif self._said:
            self._ready.touch()

    def _touch(self, path: Path) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch()

    def clear_beat(self) -> None:
        """No heartbeat is to be waited for, until one begins."""
        self._beat.unlink(missing_ok=True)

    def set_dropped_bells(self, number: int) -> None:
        """So many messages since the parent's start were no bells."""
        _replace(self._dropped, b"%d" % number)

    def dropped_bells(self) -> int:
        """What the parent said last."""
        try:
            return int(self._dropped.read_bytes())
        except FileNotFoundError:
            return 0

    def set_failure(self, message: str) -> None:
        """Leaves the reason for which a child cannot serve, for its parent."""
        self._failure.write_text(message, encoding="utf-8")

    def refuse(self, message: str) -> NoReturn:
        """Ends this process and its parent, which tells the reason and exits with the code for configuration errors."""
        self.set_failure(message)
        os.kill(os.getppid(), signal.SIGTERM)
        os._exit(CONFIGURATION_EXIT_CODE)

    def failure(self) -> str | None:
        """The reason a child left; None when there is none."""
        try:
            return self._failure.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def is_ready(self) -> bool:
        """Whether a living process says that its model is loaded. A killed one cannot take its file away."""
        try:
            pid = orjson.loads(self._ready.read_bytes())["pid"]
            os.kill(pid, 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def alive_at(self) -> float:
        """When the parent's loop turned last, by the clock of files; 0 when it never did."""
        try:
            return self._alive.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def beat_at(self) -> float | None:
        """When the child's heartbeat turned last; None when none is to be waited for."""
        try:
            return self._beat.stat().st_mtime
        except FileNotFoundError:
            return None

    def is_alive(self, max_age_s: float) -> bool:
        """Whether the parent's loop turned in the last `max_age_s` seconds."""
        return time.time() - self.alive_at() < max_age_s


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)

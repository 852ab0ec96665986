"""The files that a worker leaves in its EMBEDQ_RUN_DIR: `ready` and `alive` for probes, and `worker`, its id.

`ready`: a model is loaded. `alive`: the parent's loop turns. Whoever cleans temporary folders may remove them: they are
made again.
"""

import errno
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import orjson


class RunFolder:
    """One worker's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ready = folder / "ready"
        self._alive = folder / "alive"
        self._worker = folder / "worker"
        self._facts = b""
        self._worker_id = ""
        self._lock: int | None = None

    def take(self) -> str:
        """Makes the folder this process's own until it ends, and removes what an earlier one left for probes.

        Returns the worker's id: the same one again where a worker of this machine used the folder before, all of whose
        processes are dead now. So the ledger knows that what it held is lost.

        Raises:
            OSError: the folder cannot be made, or another worker uses it.
        """
        self._take_lock()
        self._ready.unlink(missing_ok=True)
        self._alive.unlink(missing_ok=True)
        machine = socket.gethostname()
        self._worker_id = self._worker.read_text(encoding="utf-8") if self._worker.exists() else ""
        if self._worker_id.rpartition(":")[0] != machine:
            self._worker_id = f"{machine}:{secrets.token_hex(6)}"
            self._worker.write_text(self._worker_id, encoding="utf-8")
        return self._worker_id

    def _take_lock(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(errno.EBUSY, "another worker uses this folder; give each worker its own") from None

    def leave(self) -> None:
        """Another worker may take the folder. The end of the process does the same."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def set_ready(self, facts: Mapping[str, object]) -> None:
        """Says that this process has a loaded model. `facts` are for people who look."""
        self._facts = orjson.dumps({"pid": os.getpid(), **facts})
        self.keep_ready()

    def keep_ready(self) -> None:
        """Writes the file again; nothing before `set_ready` and after `clear_ready`."""
        if self._facts:
            temporary = self._ready.with_suffix(".new")
            # The parent makes a missing folder again with its next turn. A full disk is no reason to stop serving.
            with suppress(OSError):
                temporary.write_bytes(self._facts)
                temporary.replace(self._ready)

    def clear_ready(self) -> None:
        """Says that no model is loaded."""
        self._facts = b""
        self._ready.unlink(missing_ok=True)

    def touch_alive(self) -> None:
        """The parent's event loop turned."""
        with suppress(OSError):  # a file that grows old says enough
            try:
                self._alive.touch()
            except FileNotFoundError:
                self.leave()
                self._take_lock()
                self._worker.write_text(self._worker_id, encoding="utf-8")
                self._alive.touch()

    def is_ready(self) -> bool:
        """Whether a living process says that its model is loaded. A killed one cannot take its file away."""
        try:
            os.kill(orjson.loads(self._ready.read_bytes())["pid"], 0)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def is_alive(self, max_age_s: float) -> bool:
        """Whether the parent's loop turned in the last `max_age_s` seconds."""
        try:
            return time.time() - self._alive.stat().st_mtime < max_age_s
        except FileNotFoundError:
            return False

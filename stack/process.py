"""One running process of a role: start, output, signs of life, end."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from stack.log import LineSplitter, Log
from stack.roles import Role

_DIE_WITH_PARENT = str(Path(__file__).with_name("die_with_parent.py"))
_READ_BYTES = 64 * 2**10


class RoleProcess:
    """One process of a role, started by the constructor.

    Construct it in the main thread only: the kernel ends the process when the *thread* that started it ends.
    """

    def __init__(self, role: Role, log: Log) -> None:
        self.role = role
        self.last_line = ""
        self.started_at = time.monotonic()
        self._log = log
        self._lines = LineSplitter()
        self._kill_at: float | None = None
        self._alive_seen = (0.0, self.started_at)
        if role.alive_file:
            role.alive_file.unlink(missing_ok=True)  # left by an earlier process
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._output = open(reader, "rb", buffering=0)  # noqa: SIM115, PTH123 - a descriptor, closed by `reap`
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", _DIE_WITH_PARENT, str(os.getpid()), *role.command],
            env=role.environment,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops the roles in order
            pass_fds=role.keeps_open,
        )
        os.close(writer)

    @property
    def pid(self) -> int:
        """Also the id of its process group."""
        return self._popen.pid

    @property
    def output(self) -> int | None:
        """The file descriptor to wait on for output; None once it has been closed."""
        return None if self._output.closed else self._output.fileno()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._popen.poll()

    def lived_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_at

    def log_output(self) -> bool:
        """Logs a piece of the output that has arrived; never blocks. False when there was none.

        The piece is bounded, so that one chatty role cannot keep the supervisor from the others.
        """
        piece = None if self._output.closed else self._output.read(_READ_BYTES)
        if piece == b"":
            self._output.close()
        self._write(self._lines.feed(piece or b""))
        return bool(piece)

    def hangs(self) -> bool:
        """Whether the alive file was touched once, but not within `hung_after_s`.

        Measured by the monotonic clock, which stands still while a laptop sleeps.
        """
        if self.role.alive_file is None:
            return False
        touched, since = self._alive_seen
        with contextlib.suppress(FileNotFoundError):
            now_touched = self.role.alive_file.stat().st_mtime
            if now_touched != touched:
                touched, since = self._alive_seen = now_touched, time.monotonic()
        return touched > 0 and time.monotonic() - since > self.role.hung_after_s

    def terminate(self) -> None:
        """Asks it to stop; it has `grace_s` from now."""
        self._popen.terminate()
        self._kill_at = time.monotonic() + self.role.grace_s

    def is_overdue(self) -> bool:
        """Whether it was asked to stop and its grace is over."""
        return self._kill_at is not None and time.monotonic() > self._kill_at

    def kill(self) -> None:
        """Ends it and everything that it has started in its group, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Cleans up after its end: kills the rest of its process group, logs the rest of its output."""
        self.kill()
        while self.log_output():
            pass
        self._write(self._lines.rest())
        self._output.close()

    def _write(self, lines: list[str]) -> None:
        for line in lines:
            self.last_line = line or self.last_line
            self._log.write(self.role.name, line)

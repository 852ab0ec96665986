"""One role's place in the stack: its present process, or the moment of its next start."""

import time

from stack.backoff import Backoff
from stack.log import Log
from stack.process import Process
from stack.role import Role


class Slot:
    """Starts a role, notices its end and starts it again, later each time."""

    def __init__(self, role: Role, log: Log) -> None:
        self.role = role
        self.process: Process | None = None
        self._log = log
        self._backoff = Backoff()
        self._due_at = 0.0

    def start_if_due(self) -> None:
        """Starts the role unless it runs or has to wait."""
        if self.process is None and time.monotonic() >= self._due_at:
            self.process = Process(self.role, self._log)
            self._log.say(f"{self.role.name} started, pid {self.process.pid}")

    def kill_if_hung(self) -> None:
        """Ends a process that gives no sign of life any more; it is then restarted like one that died."""
        if self.process and self.process.exit_code is None and self.process.hangs():
            self._log.say(f"{self.role.name} hangs, killing it")
            self.process.kill()

    def ended(self) -> Process | None:
        """The process if it has ended since the last call; the next start is then planned."""
        process = self.process
        if process is None or process.exit_code is None:
            return None
        process.bury()
        self.process = None
        self._backoff = self._backoff.after_death(process.lived_s())
        self._due_at = time.monotonic() + self._backoff.delay_s
        return process

    @property
    def delay_s(self) -> float:
        """Seconds between the last end and the next start."""
        return self._backoff.delay_s

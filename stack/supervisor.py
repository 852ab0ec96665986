"""The loop that keeps the roles of a local stack alive until it is told to stop: start, restart with back-off, stop.

honcho 2.0 was tried and refused: it ends all processes when one ends, has no stages, and starts each from a process in
between, which `die_with_parent` would take for the supervisor.
"""

import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from stack.log import Log, message_of
from stack.process import RoleProcess
from stack.roles import Role
from worker_config.settings import CONFIGURATION_EXIT_CODE

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
HEALTHY_AFTER_S = 60.0
"""A role that lived this long was healthy: its next death counts as the first again."""
_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before the next start, in seconds; 0 before the first one."""

    delay_s: float = 0.0

    def after_death(self, lived_s: float) -> "Backoff":
        """The next delay, given how long the process had lived."""
        if self.delay_s == 0 or lived_s >= HEALTHY_AFTER_S:
            return Backoff(FIRST_DELAY_S)
        return Backoff(min(2 * self.delay_s, LONGEST_DELAY_S))


class Slot:
    """The place of one role: its present process, or the time of its next start."""

    def __init__(self, role: Role, log: Log) -> None:
        self.role = role
        self.process: RoleProcess | None = None
        self._log = log
        self._backoff = Backoff()
        self._due_at = 0.0

    def start_if_due(self) -> None:
        """Starts the role unless it runs or has to wait."""
        if self.process is None and time.monotonic() >= self._due_at:
            self.process = RoleProcess(self.role, self._log)
            self._log.write_own(f"{self.role.name} started, pid {self.process.pid}")

    def kill_if_hung(self) -> None:
        """Ends a process that hangs; it is then restarted like one that died."""
        if self.process and self.process.exit_code is None and self.process.hangs():
            self._log.write_own(f"{self.role.name} hangs, killing it")
            self.process.kill()

    def ended(self) -> RoleProcess | None:
        """The process if it has ended since the last call; the next start is then planned."""
        process = self.process
        if process is None or process.exit_code is None:
            return None
        process.reap()
        self.process = None
        self._backoff = self._backoff.after_death(process.lived_s())
        self._due_at = time.monotonic() + self._backoff.delay_s
        return process

    @property
    def delay_s(self) -> float:
        """Seconds between the last end and the next start."""
        return self._backoff.delay_s


class Supervisor:
    """Starts roles stage by stage, restarts what dies, stops everything in order.

    Single-threaded on purpose: a role dies with the thread that started it (`die_with_parent`).

    Args:
        roles: what to run.
        log: takes the roles' output.
        is_ready: polled until it is true once.
        announce: called once, when that has happened.
    """

    def __init__(
        self, roles: Sequence[Role], log: Log, *, is_ready: Callable[[], bool], announce: Callable[[], None]
    ) -> None:
        self._slots = [Slot(role, log) for role in roles]
        self._stages = sorted({role.stage for role in roles})
        self._log = log
        self._is_ready = is_ready
        self._announce = announce
        self._started_stages = 0
        self._announced = False
        self._signals = 0
        self._misconfigured: RoleProcess | None = None

    def run(self) -> int:
        """Blocks until a signal, or until a role exits as misconfigured. The exit code: 0 or 78."""
        with self._signals_caught():
            try:
                while not self._signals and not self._misconfigured:
                    self._step()
            finally:
                self._stop()
        if self._misconfigured is None:
            return 0
        self._log.write_own(f"{self._misconfigured.role.name} cannot run: {message_of(self._misconfigured.last_line)}")
        return CONFIGURATION_EXIT_CODE

    def _step(self) -> None:
        self._start_next_stage()
        for slot in self._slots_of(self._stages[: self._started_stages]):
            slot.start_if_due()
        self._log_output()
        for slot in self._slots:
            slot.kill_if_hung()
            if process := slot.ended():
                self._report_end(process, slot.delay_s)
        if not self._announced and self._started_stages == len(self._stages) and self._is_ready():
            self._announced = True
            self._announce()

    def _start_next_stage(self) -> None:
        running = self._slots_of(self._stages[: self._started_stages])
        if self._started_stages < len(self._stages) and all(slot.process and slot.role.is_up() for slot in running):
            self._started_stages += 1

    def _report_end(self, process: RoleProcess, delay_s: float) -> None:
        if process.exit_code == CONFIGURATION_EXIT_CODE:
            self._misconfigured = self._misconfigured or process
            return
        self._log.write_own(f"{process.role.name} ended {_how(process.exit_code)}, starting it again in {delay_s:g} s")

    def _stop(self) -> None:
        for stage in reversed(self._stages):
            processes = [slot.process for slot in self._slots_of([stage]) if slot.process]
            for process in processes:
                self._log.write_own(f"stopping {process.role.name}")
                process.terminate()
            while running := [process for process in processes if process.exit_code is None]:
                for process in running:
                    if process.is_overdue() or self._signals > 1:
                        process.kill()
                self._log_output()
            for process in processes:
                process.reap()

    def _log_output(self) -> None:
        processes = {slot.process.output: slot.process for slot in self._slots if slot.process}
        readable, _, _ = select.select([output for output in processes if output is not None], [], [], _TICK_S)
        for output in readable:
            processes[output].log_output()

    def _slots_of(self, stages: Sequence[int]) -> list[Slot]:
        return [slot for slot in self._slots if slot.role.stage in stages]

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        def count(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature is Python's
            self._signals += 1  # the second one hurries

        caught = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup: survive the terminal
            caught.append(signal.SIGHUP)
        previous = {number: signal.signal(number, count) for number in caught}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"with exit code {exit_code}"
    return f"by {signal.Signals(-exit_code).name}"

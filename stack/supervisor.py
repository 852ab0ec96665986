"""The loop that keeps the roles of a local stack alive until somebody asks it to stop."""

import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from stack.log import Log
from stack.process import Process
from stack.role import Role
from stack.slot import Slot
from worker_config.settings import CONFIGURATION_EXIT_CODE

_TICK_S = 0.1


class Supervisor:
    """Starts roles stage by stage, restarts what dies, stops everything in order. Single-threaded, on purpose.

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
        self._hopeless: Process | None = None

    def run(self) -> int:
        """Blocks until a signal, or until a role says that it can never run. The exit code: 0 or 78."""
        with self._signals_caught():
            try:
                while not self._signals and not self._hopeless:
                    self._step()
            finally:
                self._stop()
        if self._hopeless is None:
            return 0
        self._log.say(f"{self._hopeless.role.name} cannot run: {self._hopeless.last_line}")
        return CONFIGURATION_EXIT_CODE

    def _step(self) -> None:
        self._start_next_stage()
        for slot in self._slots_of(self._stages[: self._started_stages]):
            slot.start_if_due()
        self._pump()
        for slot in self._slots:
            slot.kill_if_hung()
            if process := slot.ended():
                self._judge(process, slot.delay_s)
        if not self._announced and self._started_stages == len(self._stages) and self._is_ready():
            self._announced = True
            self._announce()

    def _start_next_stage(self) -> None:
        running = self._slots_of(self._stages[: self._started_stages])
        if self._started_stages < len(self._stages) and all(slot.process and slot.role.is_up() for slot in running):
            self._started_stages += 1

    def _judge(self, process: Process, delay_s: float) -> None:
        if process.exit_code == CONFIGURATION_EXIT_CODE:
            self._hopeless = self._hopeless or process
            return
        self._log.say(f"{process.role.name} ended {_how(process.exit_code)}, starting it again in {delay_s:g} s")

    def _stop(self) -> None:
        for stage in reversed(self._stages):
            processes = [slot.process for slot in self._slots_of([stage]) if slot.process]
            for process in processes:
                self._log.say(f"stopping {process.role.name}")
                process.terminate()
            while running := [process for process in processes if process.exit_code is None]:
                for process in running:
                    if process.is_overdue() or self._signals > 1:
                        process.kill()
                self._pump()
            for process in processes:
                process.bury()

    def _pump(self) -> None:
        processes = {slot.process.output: slot.process for slot in self._slots if slot.process}
        readable, _, _ = select.select([output for output in processes if output is not None], [], [], _TICK_S)
        for output in readable:
            processes[output].pump()

    def _slots_of(self, stages: Sequence[int]) -> list[Slot]:
        return [slot for slot in self._slots if slot.role.stage in stages]

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature is Python's
            self._signals += 1  # the second one hurries

        caught = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup wants us to survive the terminal
            caught.append(signal.SIGHUP)
        previous = {number: signal.signal(number, note) for number in caught}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _how(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"with exit code {exit_code}"
    return f"by {signal.Signals(-exit_code).name}"

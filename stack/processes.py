"""What `embedq up` starts: processes with one log, which run until one of them ends, and are then all stopped.

honcho 2.0 was tried and refused: it has no order of start and stop, and starts each process from one in between, which
outlives a killed `embedq up`.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TextIO, cast

import orjson

from worker_config.logs import LogFormat, json_line

OWN_NAME = "stack"
STOP_S = 30.0
"""From SIGTERM to SIGKILL: a worker finishes the pass that it is in."""
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>; it survives exec, and fires when the thread that forked ends
_TICK_S = 0.1
_PROBE_EVERY_S = 1.0
_LAST_LINES_S = 5.0
_MAX_LINE_BYTES = 64 * 2**10


class Log:
    """Lines of all processes on one stream, each behind its process's name.

    In JSON, a line that is an object stays as it is, because it says whose it is. Other lines, such as those of Redis,
    become the message of one.
    """

    def __init__(self, stream: TextIO, log_format: LogFormat = "text") -> None:
        self._stream, self._format = stream, log_format
        self._turn = threading.Lock()

    def write(self, name: str, line: str) -> None:
        """Writes one line of the process `name`."""
        if self._format == "text":
            line = f"{name:<{len('documents-worker')}} | {line}"
        elif not line.startswith("{"):
            line = json_line(name, name, line)
        # The reader may be gone (`embedq up 2>&1 | head`), or its disk full. The service goes on without its log.
        with self._turn, contextlib.suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()


class Child:
    """A process that dies with this one; its output goes to the log, line by line. Start it in the main thread.

    `keeps_open`: file descriptors that it inherits.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Log,
        *,
        keeps_open: Sequence[int] = (),
    ) -> None:
        self.name, self.last_line = name, ""
        self._log = log
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches `embedq up` alone, which stops all in order
            pass_fds=keeps_open,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509 - it takes no lock
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Asks it to stop."""
        self._process.terminate()

    def end(self) -> None:
        """Ends it and all that it has started in its session, at once; its whole output is logged."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(_LAST_LINES_S)

    def _read(self) -> None:
        with cast("IO[bytes]", self._process.stdout) as output:
            while line := output.readline(_MAX_LINE_BYTES):
                text = line.rstrip(b"\r\n").decode(errors="replace")
                self.last_line = text or self.last_line
                self._log.write(self.name, text)


def wait_for_the_first_end(
    processes: Sequence[Child], signals: Sequence[int], *, is_ready: Callable[[], bool], announce: Callable[[], None]
) -> Child | None:
    """The process that has ended; None: a signal came. `announce` is called once, when `is_ready` was first true."""
    probe_at: float | None = time.monotonic()
    while not signals:
        for process in processes:
            if process.exit_code is not None:
                return process
        if probe_at is not None and time.monotonic() >= probe_at:
            probe_at = time.monotonic() + _PROBE_EVERY_S
            if is_ready():
                probe_at = None
                announce()
        time.sleep(_TICK_S)
    return None


def stop(processes: Sequence[Child], signals: Sequence[int]) -> None:
    """Stops these together. A second signal hurries."""
    for process in processes:
        process.terminate()
    end = time.monotonic() + STOP_S
    while time.monotonic() < end and len(signals) < 2 and any(process.exit_code is None for process in processes):  # noqa: PLR2004
        time.sleep(_TICK_S)
    for process in processes:
        process.end()


def note_signals() -> list[int]:
    """The signals so far, from now on, that ask for an end."""
    noted = list[int]()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: survive the terminal
            signal.signal(number, lambda number, _: noted.append(number))
    return noted


def how_it_ended(process: Child) -> str:
    """In words."""
    code = process.exit_code
    return f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"


def message_of(line: str) -> str:
    """What a line of a process says, in either form of log."""
    with contextlib.suppress(orjson.JSONDecodeError):
        logged = orjson.loads(line)
        if isinstance(logged, dict):
            return str(logged.get("message", line))
    return line


def _die_with_parent() -> Callable[[], None] | None:
    """What the child does before it becomes a program: nothing of it outlives `kill -9` of this process."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec nothing may wait for a lock
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

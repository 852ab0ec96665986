"""Processes of one log over real ones: their lines, their end, and nobody left behind."""

import io
import os
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest

from stack import processes
from stack.processes import Child, Log, how_it_ended, message_of, stop, wait_for_the_first_end
from tests.processes import wait_until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); sys.exit(3)"


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:  # noqa: ARG002 - the signature is the base class's
        raise BrokenPipeError


@pytest.fixture
def started() -> Iterator[list[Child]]:
    made: list[Child] = []
    yield made
    for process in made:
        process.end()


def start(started: list[Child], code: str, stream: io.StringIO, name: str = "role") -> Child:
    started.append(Child(name, [sys.executable, "-c", code], dict(os.environ), Log(stream)))
    return started[-1]


def test_each_line_carries_the_name_of_its_process(started: list[Child]) -> None:
    stream = io.StringIO()
    code = "import sys; sys.stdout.buffer.write(b'one\\r\\n\\xff!\\n' + b'x' * 70000 + b'\\nlast')"
    process = start(started, code, stream)
    wait_until(lambda: process.exit_code is not None)
    process.end()
    lines = [line.removeprefix("role             | ")[:6] for line in stream.getvalue().splitlines()]
    assert lines == ["one", "\ufffd!", "xxxxxx", "xxxxxx", "last"]
    assert process.last_line == "last"
    Log(ClosedPipe()).write("api", "a log that nobody reads stops nothing")
    assert [message_of(line) for line in ("no", '{"message":"no"}', "[1]", "{}")] == ["no", "no", "[1]", "{}"]


def test_the_first_that_ends_is_told_and_nothing_of_it_is_left(
    started: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    others, parent = [start(started, STUBBORN, stream) for _ in range(2)], start(started, PARENT, stream)
    wait_until(lambda: stream.getvalue().count("| up") == 3, message="all, and the child of one")
    ended = wait_for_the_first_end([*others, parent], [], is_ready=lambda: False, announce=lambda: None)
    assert ended is parent
    assert how_it_ended(parent) == "with exit code 3"
    stop([parent], [])
    assert others[0].exit_code is None
    stop([others[0]], [signal.SIGINT, signal.SIGINT])
    assert how_it_ended(others[0]) == "by SIGKILL", "the second signal hurries"
    monkeypatch.setattr(processes, "STOP_S", 0.2)
    stop([others[1]], [signal.SIGTERM])
    assert others[1].exit_code == -signal.SIGKILL, "who does not stop in time"
    wait_until(lambda: not [each for each in psutil.process_iter() if STUBBORN in _command(each)])


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""

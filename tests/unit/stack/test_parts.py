"""Parts of the local stack: the lock of its folder, ports, which Redis with which options, and processes of one log."""

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stack import processes
from stack.data_folder import locked
from stack.errors import StackError
from stack.ports import free_port, require_free
from stack.processes import Child, Log, how_it_ended, message_of, stop, wait_for_the_first_end
from stack.redis_server import choose_endpoint, find_server
from tests.processes import wait_until

NOBODY = "no_such_package"
OLD, NEW = "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64", "Redis server v=10.0.1 sha=00000000:0"
VALKEY = "Valkey server v=8.1.0 sha=00000000:0"


def test_the_lock_lives_on_in_whoever_inherited_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with locked(folder) as descriptor:
        assert folder.stat().st_mode & 0o777 == 0o700, "it is for its owner alone"
        heir = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[descriptor], stdin=subprocess.PIPE)
    with pytest.raises(StackError, match=rf"pid {os.getpid()}\) uses {folder}"), locked(folder, patience_s=0):
        pass
    heir.communicate(b"\n")
    with locked(folder, patience_s=0):
        pass


def test_a_free_port_is_none_that_the_kernel_gives_to_connections_and_a_taken_one_is_refused() -> None:
    assert free_port() < 32_768
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        require_free("127.0.0.1", port)
        listening.listen()
        with pytest.raises(StackError, match=f"Port {port} is taken"):
            require_free("127.0.0.1", port)


@pytest.mark.parametrize(
    ("redis", "valkey", "used"),
    [
        (OLD, "", "redis-server"),
        (NEW, "", "redis-server"),
        ("", VALKEY, "valkey-server"),
        (OLD, VALKEY, "valkey-server"),  # the newest
        ("Redis server v=6.0.16 sha=00000000:0", "Valkey server v=7.2.5 sha=0", "valkey-server"),  # too old
        ("Redis server v=5.0.7 sha=0", "", None),
        ("not a version", "", None),
    ],
)
def test_the_newest_server_on_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis: str, valkey: str, used: str | None
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, version in (("redis-server", redis), ("valkey-server", valkey)):
        if version:
            (tmp_path / name).write_text(f"#!/bin/sh\necho '{version}'\n")
            (tmp_path / name).chmod(0o755)
    if used:
        assert find_server() == tmp_path / used
    else:
        with pytest.raises(StackError, match=r"embedq\[local\].*EMBEDQ_REDIS_URL"):
            find_server(bundled_by=NOBODY)


@pytest.mark.parametrize("name", ["x" * 100, "with space", "per%20cent", "what?"])
def test_a_path_that_makes_no_good_url_gives_a_loopback_port(tmp_path: Path, name: str) -> None:
    endpoint = choose_endpoint(tmp_path / name)
    assert endpoint.arguments() == ["--bind", "127.0.0.1", "--port", str(endpoint.port)]
    assert endpoint.url == f"redis://127.0.0.1:{endpoint.port}/0"


# Processes of one log over real ones: their lines, their end, and nobody left behind.


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

"""Starts roles by a fork of a process that has imported them: most of a start's processor time is imports.

`popen` takes the place of `subprocess.Popen` for `python -m MODULE …`. What it starts has its own session, environment,
folder and files, and runs the module as `__main__`.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.source_tree import CHECKOUT

_ROLES = (
    "api.app",
    "uvicorn.supervisors",
    "tasks.worker.model_worker",
    "tasks.ingestion.process",
    "celery.apps.worker",
)
_REAL_MODELS = (*_ROLES, "sentence_transformers")
"""Importing torch and its library starts no thread, so that a fork of it is whole."""
_MAX_REQUEST = 2**20
_turn = threading.Lock()


class Forked:
    """A process that was started so, with those methods of `subprocess.Popen` that tests need."""

    def __init__(self, pid: int, ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """Its exit code as `subprocess` has it; None: it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same, once it has ended. Raises `subprocess.TimeoutExpired`."""
        if self._look(timeout) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], timeout)[0]:
            self.returncode = int(os.read(self._ended, 16) or b"-9")
            os.close(self._ended)
        return self.returncode


def popen(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes], **options: Any
) -> Any:
    """Starts a command in a session of its own, without standard input; of Python's modules by a fork."""
    if list(command[:2]) != [sys.executable, "-m"]:
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=stdout, stderr=stderr, **options)
    ended, tells = os.pipe()
    request = json.dumps({"arguments": command[2:], "cwd": str(cwd), "env": dict(env)}).encode()
    with _turn:
        server = _server(env.get("EMBEDQ_COMPUTE", "fake") == "fake")
        socket.send_fds(server, [request], [stdout.fileno(), stderr.fileno(), tells])
        pid = int(server.recv(16))
    os.close(tells)
    return Forked(pid, ended)


@functools.cache
def _server(fake: bool) -> socket.socket:
    """The connection to the process that forks; a process of a run has one for either kind of encoder."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(theirs.fileno()), *(_ROLES if fake else _REAL_MODELS)],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1"},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # which ends it; called before the wait
    return ours


def _serve(connection: socket.socket, modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    asks = connection.fileno()
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([asks, *children], [], [])[0]:
            if ready in children:
                _tell(ready, *children.pop(ready))
                continue
            request, fds, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
            if not request:
                return
            stdout, stderr, tells = fds
            pid = os.fork()
            if not pid:
                for fd in (asks, tells, *children, *(tells for _, tells in children.values())):
                    os.close(fd)
                _become(json.loads(request), stdout, stderr)
            os.close(stdout)
            os.close(stderr)
            children[os.pidfd_open(pid)] = (pid, tells)
            connection.send(str(pid).encode())


def _tell(child: int, pid: int, tells: int) -> None:
    """A child has ended: its exit code goes to whoever waits."""
    os.close(child)
    with contextlib.suppress(BrokenPipeError):
        os.write(tells, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os.close(tells)


def _become(request: Mapping[str, Any], stdout: int, stderr: int) -> None:
    """Runs a module in this process, as `python -m` does, and does not return."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((nothing, 0), (stdout, 1), (stderr, 2)):
        os.dup2(fd, place)
        os.close(fd)
    module, *arguments = request["arguments"]
    sys.argv = [module, *arguments]
    sys.path[0] = request["cwd"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])

"""The parent's side of one parsing process: starts it, asks it, ends it."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tasks.documents.sources.frames import LENGTHS, ChildFailed, header_from_bytes, lengths
from tasks.ingestion.parsing.limits import ParseLimits

_ROOT = Path(__file__).resolve().parents[3]
# Nothing of the worker's own: that holds keys and passwords, and a parser may be taken over by what it reads.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8"}
_START_S = 60
_TICK_S = 1.0
_END_S = 5
_CHUNK_BYTES = 2**20


class ChildProcess:
    """Runs in a session of its own, so that all of it can be killed. Belongs to the thread that made it.

    Raises:
        ChildFailed: it did not start.
    """

    def __init__(self, limits: ParseLimits, module: str, progress: Callable[[], None]) -> None:
        self.progress = progress
        """Called about once a second while an answer is awaited; each caller of `ask` sets its own."""
        arguments = [str(os.getpid()), str(limits.memory_bytes), str(limits.timeout_s)]
        self._popen = subprocess.Popen(  # noqa: S603 - this interpreter, a module of ours
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=_ROOT,
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        if self._popen.stdin is None or self._popen.stdout is None:
            raise AssertionError
        self._requests, self._answers = self._popen.stdin.fileno(), self._popen.stdout.fileno()
        os.set_blocking(self._requests, False)
        os.set_blocking(self._answers, False)
        try:
            self.ask((), _START_S)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Its process id, which is its session's too."""
        return self._popen.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def ask(self, pieces: Sequence[bytes], timeout_s: float) -> tuple[dict[str, Any], bytes]:
        """Header and body of the answer to a frame. After any error it has to be killed.

        Raises:
            ChildFailed: it was too slow, died or broke the protocol.
        """
        deadline = time.monotonic() + timeout_s
        rest = [memoryview(piece) for piece in pieces if piece]
        answer = _Answer()
        with selectors.DefaultSelector() as selector:
            selector.register(self._answers, selectors.EVENT_READ)
            if rest:
                selector.register(self._requests, selectors.EVENT_WRITE)
            while not answer.complete:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ChildFailed("parse_timeout")
                self.progress()
                for key, _ in selector.select(min(left, _TICK_S)):
                    if key.fd == self._answers:
                        self._read(answer)
                    elif not self._write(rest):
                        selector.unregister(self._requests)
        return answer.parts()

    def kill(self) -> None:
        """Ends it and all that it may have started, at once."""
        self._kill_group()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        self._popen.wait()

    def _kill_group(self) -> None:
        if self._popen.returncode is None:  # else its id may be somebody else's by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, signal.SIGKILL)

    def _read(self, answer: "_Answer") -> None:
        try:
            data = os.read(self._answers, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ChildFailed("parse_memory" if self._died_hungry() else "parser_crashed")
        answer.add(data)

    def _write(self, rest: list[memoryview]) -> bool:
        """Writes as much as the pipe takes; False: nothing is left, or the reader is gone, which `_read` will find."""
        try:
            written = os.write(self._requests, rest[0][:_CHUNK_BYTES])
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        rest[0] = rest[0][written:]
        if not rest[0]:
            del rest[0]
        return bool(rest)

    def _died_hungry(self) -> bool:
        """Whether the kernel killed it, which it does for memory alone; its peak is no sign, as forks inherit it."""
        try:
            return self._popen.wait(_END_S) == -signal.SIGKILL
        except subprocess.TimeoutExpired:  # it has closed its answers and lives on
            return False


class _Answer:
    def __init__(self) -> None:
        self._data = bytearray()
        self._size: tuple[int, int] | None = None

    @property
    def complete(self) -> bool:
        return self._size is not None and len(self._data) >= LENGTHS.size + sum(self._size)

    def add(self, data: bytes) -> None:
        self._data += data
        if self._size is None and len(self._data) >= LENGTHS.size:
            self._size = lengths(bytes(self._data[: LENGTHS.size]))
        if self._size is not None and len(self._data) > LENGTHS.size + sum(self._size):
            raise ChildFailed  # more than one answer

    def parts(self) -> tuple[dict[str, Any], bytes]:
        if self._size is None:
            raise AssertionError
        view = memoryview(self._data)
        header_end = LENGTHS.size + self._size[0]
        return header_from_bytes(bytes(view[LENGTHS.size : header_end])), bytes(view[header_end:])

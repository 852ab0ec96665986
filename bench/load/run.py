"""Runs a load in a process of its own and takes its result."""

import subprocess
import sys
from pathlib import Path

from bench.load import wrk
from bench.load.plan import Load, LoadResult

CHECKOUT = Path(__file__).resolve().parents[2]


class LoadError(Exception):
    """The generator died."""


class Running:
    """A load that runs in the background."""

    def __init__(self, load: Load) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load.raw"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT
        )
        assert self._process.stdin is not None
        self._process.stdin.write(load.to_json().encode())
        self._process.stdin.close()
        self._process.stdin = None  # communicate would try to flush it

    def result(self) -> LoadResult:
        """Waits for its end.

        Raises:
            LoadError: the generator died.
        """
        output, _ = self._process.communicate()
        if self._process.returncode:
            raise LoadError(f"the load generator ended with {self._process.returncode}")
        return LoadResult.from_json(output)

    def stop(self) -> None:
        """Ends it without a result."""
        self._process.kill()
        self._process.communicate()


def run_raw(load: Load) -> LoadResult:
    """By the generator of our own."""
    return Running(load).result()


def run_light(load: Load) -> LoadResult:
    """By `wrk` if it is installed: it takes a tenth of the CPU, which the server may then have."""
    return wrk.run(load) if wrk.available() else run_raw(load)


def generator_name() -> str:
    """Which of them `run_light` uses."""
    return "wrk" if wrk.available() else "sockets on an event loop"

"""The `embedq` command as tests run it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.processes import CHECKOUT

TIMEOUT_S = 100


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


@dataclass(frozen=True)
class Command:
    """The `embedq` command in a process of its own, in a folder of its own."""

    url: str
    folder: Path

    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str) -> Ran:
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment() | environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *arguments: str, stdout: int = subprocess.PIPE) -> Iterator["subprocess.Popen[str]"]:
        """The command while it runs, its stdout in a pipe or in the file with this descriptor."""
        with subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-P", "-m", "embedq", *arguments]

    def _environment(self) -> dict[str, str]:
        # xdist names a width, which would hide that of a terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        return {**inherited, "PYTHONPATH": str(CHECKOUT), "EMBEDQ_URL": self.url}

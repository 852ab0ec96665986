"""The `embedq` command as tests run it: in this process, or in one of its own where that matters."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest import mock

from embedq.cli import main
from tests.processes import CHECKOUT


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
    """The `embedq` command, in a folder of its own."""

    url: str
    folder: Path

    def __call__(self, *arguments: str, stdin: str = "") -> Ran:
        """Runs it here: a process of its own takes longer to start than most commands take."""
        with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            given.write(stdin)
            given.seek(0)
            environment = {"EMBEDQ_URL": self.url, "EMBEDQ_API_KEY": ""}
            patched = mock.patch.dict(os.environ, environment), mock.patch.object(sys, "stdin", given)
            with patched[0], patched[1], chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
                try:
                    code = main(arguments)
                except SystemExit as ended:
                    code = int(ended.code or 0)
            out.seek(0)
            err.seek(0)
            return Ran(code, out.read(), err.read())

    @contextmanager
    def started(self, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
        """The command in a process of its own, while it runs."""
        # xdist names a width, which would hide that of a terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "embedq", *arguments],
            cwd=self.folder,
            env=inherited | {"PYTHONPATH": str(CHECKOUT), "EMBEDQ_URL": self.url} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

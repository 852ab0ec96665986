"""Prometheus's programs. Debian's package `prometheus` has both."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


def _find(name: str) -> str:
    program = shutil.which(name)
    if program is not None:
        return program
    missing = f"no {name}: apt-get install prometheus"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def prometheus() -> str:
    """The server. Without it the test is skipped at home and fails in CI."""
    return _find("prometheus")


@pytest.fixture(scope="session")
def promtool() -> Callable[..., None]:
    """Runs promtool and fails with what it says when it is not content. Without it as `prometheus`."""
    program = _find("promtool")

    def run(*arguments: str | Path, stdin: str | None = None) -> None:
        done = subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run

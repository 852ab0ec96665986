"""Virtual environments for servers whose packages do not agree with those of this project; each is made once."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.load.run import CHECKOUT

CACHE = CHECKOUT / ".cache" / "bench"
_DONE = "made"
_SHOWN = 300


class NotAvailableError(Exception):
    """A server cannot be had on this machine."""


def environment(name: str, requirements: Sequence[str], cache: Path = CACHE) -> Path:
    """The folder of the environment with these packages; it is made if it is not there, and older ones are removed.

    Raises:
        NotAvailableError: the packages cannot be installed.
    """
    folder = cache / folder_name(name, requirements)
    if (folder / _DONE).exists():
        return folder
    for old in cache.glob(f"{name}-*"):
        shutil.rmtree(old)
    print(f"making the environment of {name} (once; this takes some minutes)", file=sys.stderr, flush=True)
    run([sys.executable, "-m", "venv", str(folder)])
    listed = folder / "requirements.txt"
    listed.write_text("".join(f"{line}\n" for line in requirements))
    # No package is built: what builds would be downloaded without a pin.
    install = [str(folder / "bin" / "pip"), "install", "-q", "--only-binary=:all:"]
    if torch := [line for line in requirements if line.startswith("torch==")]:
        run([*install, *torch, "-c", str(listed)])  # with the CUDA libraries that another build of it needs
    run([*install, "--no-deps", "-r", str(listed)])
    (folder / _DONE).touch()
    return folder


def folder_name(name: str, requirements: Sequence[str]) -> str:
    """Another one for other packages, and for another Python."""
    told = json.dumps([platform.python_version(), *requirements])
    return f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"


def run(command: Sequence[str]) -> None:
    """Runs it to its end; what it prints is shown only if it fails.

    Raises:
        NotAvailableError: it failed.
    """
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT), "HF_HUB_OFFLINE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        told = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "")
        raise NotAvailableError(f"{' '.join(command[1:4])} ended with {done.returncode}: {told.strip()[:_SHOWN]}")

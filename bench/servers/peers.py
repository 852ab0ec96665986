"""What embedq is compared with: the usual design, and servers from PyPI in environments of their own.

The packages of peers are pinned in `peers.toml`. None of them keeps anything: what it had accepted is gone with it.
"""

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bench.load import CHECKOUT
from bench.report import REFERENCE
from bench.servers.server import Server, started
from stack.ports import free_port
from tasks.encoder.locate import locate
from worker_config.settings import DEFAULT_MODEL

PEERS = ("infinity", "openvino")
_PINS = Path(__file__).with_name("peers.toml")
_CACHE = CHECKOUT / ".cache" / "bench"


class NotAvailableError(Exception):
    """A peer cannot be had on this machine."""


@cache
def pins() -> Mapping[str, Sequence[str]]:
    """What is installed for each peer; the first package is the peer itself."""
    return {name: section["packages"] for name, section in tomllib.loads(_PINS.read_text()).items()}


def make(name: str) -> Path:
    """The folder of the peer's environment, made if it is not there.

    Raises:
        NotAvailableError: its packages cannot be installed.
    """
    told = json.dumps([sys.version, *pins()[name]])
    folder = _CACHE / f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
    if (folder / "made").exists():
        return folder
    print(f"making the environment of {name} (once; this takes some minutes)", file=sys.stderr, flush=True)
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    (folder / "requirements.txt").write_text("\n".join(pins()[name]))
    # No package is built: what builds would be downloaded without a pin.
    install = (str(folder / "bin" / "pip"), "install", "-q", "--only-binary=:all:")
    torch = next(line for line in pins()[name] if line.startswith("torch=="))
    _run(*install, torch, "-c", str(folder / "requirements.txt"))  # with the CUDA libraries that its build needs
    _run(*install, "--no-deps", "-r", str(folder / "requirements.txt"))
    (folder / "made").touch()
    return folder


@contextmanager
def serving(name: str, folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """The usual design or a peer, running; stopped at the end."""
    port, model = free_port(), locate(str(settings.get("model", DEFAULT_MODEL)))
    python = sys.executable if name == REFERENCE else str(make(name) / "bin" / "python")
    if name == "infinity":
        command = _infinity(python, model, port)
    else:
        command = [python, "-m", "bench.servers.locked", "--model", str(model), "--port", str(port)]
        command += ["--backend", name] if name in PEERS else []
        command += ["--device", str(settings["device"])] if settings.get("device", "auto") != "auto" else []
    health = "/health" if name == "infinity" else "/health/live"
    with started(name, command, port, folder, health=health) as server:
        yield server


def _infinity(python: str, model: Path, port: int) -> list[str]:
    options = {
        "--model-id": model,
        "--served-model-name": "infinity",
        "--engine": "torch",
        "--device": "cpu",
        "--dtype": "float32",
        "--host": "127.0.0.1",
        "--port": port,
        "--url-prefix": "/v1",
        "--log-level": "warning",
    }
    told = [str(word) for option in options.items() for word in option]
    start = [str(Path(python).with_name("infinity_emb")), "v2", *told, "--no-bettertransformer"]
    return ["env", "DO_NOT_TRACK=1", *start]


def _run(*command: str) -> None:
    environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode:
        raise NotAvailableError(f"{' '.join(command[:4])} ended with {done.returncode}: {done.stderr.strip()[-300:]}")

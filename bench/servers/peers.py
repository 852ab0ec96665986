"""Servers that a user could run instead of embedq, each from PyPI in an environment of its own, as fast as it goes.

Their packages are pinned in `peers.toml`. None of them keeps anything: what it had accepted is gone with its process.
"""

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.servers import environments
from bench.servers.environments import NotAvailableError
from bench.servers.others import started
from bench.servers.server import Server
from stack.ports import free_port
from tasks.encoder.check_model_folder import revision_of
from tasks.encoder.interface import ModelLoadError
from tasks.encoder.locate import locate
from worker_config.settings import DEFAULT_MODEL

PINS = Path(__file__).with_name("peers.toml")


@dataclass(frozen=True, slots=True)
class Peer:
    """How one of them is started.

    Attributes:
        command: from the folder of its environment, the model's folder and a port.
        model_format: of the model's folder (`bench.servers.export`).
        exporter: in the environment of which peer that folder is made.
        health_path: answers 200 when it is ready.
    """

    command: Callable[[Path, Path, int], Sequence[str]]
    model_format: str
    exporter: str
    health_path: str = "/health/live"


def _behind_fastapi(design: str, engine: str) -> Callable[[Path, Path, int], Sequence[str]]:
    def command(environment: Path, model: Path, port: int) -> Sequence[str]:
        start = [str(environment / "bin" / "python"), "-m", "bench.baselines", design]
        return [*start, "--engine", engine, "--model", str(model), "--port", str(port)]

    return command


def _infinity(environment: Path, model: Path, port: int) -> Sequence[str]:
    pooling = json.loads((model / "1_Pooling" / "config.json").read_text())
    options = {
        "--model-id": ".",  # optimum finds no ONNX file by an absolute path
        "--served-model-name": "infinity",
        "--engine": "optimum",
        "--device": "cpu",
        "--pooling-method": "cls" if pooling["pooling_mode_cls_token"] else "mean",
        "--host": "127.0.0.1",
        "--port": port,
        "--url-prefix": "/v1",
        "--log-level": "warning",
    }
    told = [str(word) for option in options.items() for word in option]
    cached = f"HF_HOME={model}-cache"
    return [
        "env",
        "-C",
        str(model),
        "DO_NOT_TRACK=1",
        cached,
        str(environment / "bin" / "infinity_emb"),
        "v2",
        *told,
    ]


PEERS: Mapping[str, Peer] = {
    "infinity": Peer(_infinity, "onnx", exporter="infinity", health_path="/health"),
    "openvino": Peer(_behind_fastapi("locked", "openvino"), "openvino", exporter="openvino"),
    "fastembed": Peer(_behind_fastapi("locked", "fastembed"), "onnx", exporter="infinity"),  # it has no torch
}


@cache
def pins() -> Mapping[str, Sequence[str]]:
    """What is installed for each peer; the first package is the peer itself."""
    return {name: section["packages"] for name, section in tomllib.loads(PINS.read_text()).items()}


def version(name: str) -> str:
    """The peer's package and its version."""
    return pins()[name][0].replace("==", " ")


def make(name: str, settings: Mapping[str, Any]) -> tuple[Path, Path]:
    """The folders of the environment and of the model, made if they are not there.

    Raises:
        NotAvailableError: this machine cannot have it.
    """
    peer = PEERS[name]
    try:
        source = locate(str(settings.get("model", DEFAULT_MODEL)))
    except ModelLoadError as error:
        raise NotAvailableError(str(error)) from error
    environment = environments.environment(name, pins()[name])
    exporter = environments.environment(peer.exporter, pins()[peer.exporter])
    model = environment / f"model-{revision_of(source)}"  # of its own: infinity writes into it
    if not model.exists():
        unfinished = model.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        python = str(exporter / "bin" / "python")
        environments.run([python, "-m", "bench.servers.export", peer.model_format, str(source), str(unfinished)])
        unfinished.rename(model)
    return environment, model


@contextmanager
def serving(name: str, folder: Path, settings: Mapping[str, Any]) -> Iterator[Server]:
    """The peer, running; stopped at the end."""
    environment, model = make(name, settings)
    port = free_port()
    command = PEERS[name].command(environment, model, port)
    with started(name, command, port, folder, health_path=PEERS[name].health_path) as server:
        yield server

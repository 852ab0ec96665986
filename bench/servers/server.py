"""A running server, as the scenarios see it, and servers of one process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from bench.report import PRODUCT
from stack.ports import body_of
from tests.processes import Process

LONGEST_POLL_S = 50


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is and what may be asked of it.

    Attributes:
        name: `embedq`, `locked` or a peer.
        base_url: OpenAI's, `http://host:port/v1`.
        model: the name to send.
        health_url: something cheap that says that the process lives.
        pids: process ids by role; empty when the processes are not ours.
        start_s: from the start of the first process to the first answer that needs the model; None: it ran already.
    """

    name: str
    base_url: str
    model: str
    health_url: str
    pids: Mapping[str, int] = field(default_factory=dict)
    start_s: float | None = None

    @property
    def is_product(self) -> bool:
        """Whether it speaks the native API."""
        return self.name == PRODUCT

    def client(self) -> httpx.Client:
        """Of the native API and of files; patient enough for the longest poll."""
        return httpx.Client(base_url=self.base_url, timeout=LONGEST_POLL_S + 30, trust_env=False)


@contextmanager
def started(name: str, command: Sequence[str], port: int, folder: Path, *, health: str) -> Iterator[Server]:
    """A server of one process that answers on the port, with its log in the folder; stopped at the end."""
    process = Process(name, list(command), folder)
    try:
        process.launch()
        process.wait_while_running(lambda: body_of("127.0.0.1", port, health) is not None, health)
        root = f"http://127.0.0.1:{port}"
        yield Server(name, f"{root}/v1", name, health_url=root + health)
    finally:
        process.stop()

"""A server with the fake encoder, and the command that talks to it."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from embedq import EmbeddingService
from stack.testing import CHECKOUT, ApiProcess, RedisServer, Roles
from tests.key_leaks import leaked_keys

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
    def started(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """The command while it runs, its stdout in a pipe."""
        with subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
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
        return {**os.environ, "PYTHONPATH": str(CHECKOUT), "EMBEDQ_URL": self.url}


@pytest.fixture(scope="module")
def server(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Roles, ApiProcess]]:
    """A web tier and a worker on a Redis of their own, ready, for all tests of a module: they start once.

    The key-leak check is that of the module: at its end nothing may be left but keys that expire.
    """
    folder = tmp_path_factory.mktemp("client")
    redis = start_redis(folder / "redis")
    try:
        with Roles(folder, redis.url) as roles:
            roles.worker()
            api = roles.api()
            api.wait_ready()
            yield roles, api
        with redis.client() as client:
            assert leaked_keys(client) == []
    finally:
        redis.stop()


@pytest.fixture
def api(server: tuple[Roles, ApiProcess]) -> ApiProcess:
    """The web tier of the module."""
    return server[1]


@pytest.fixture
def another_api(server: tuple[Roles, ApiProcess]) -> Iterator[ApiProcess]:
    """A second web tier on the same queue, which the test may kill."""
    api = server[0].api()
    yield api
    api.stop()


@pytest.fixture
def slow_api(roles: Roles) -> ApiProcess:
    """A web tier with a worker so slow that a long task can be caught while it runs."""
    roles.worker(fake_tokens_per_s=200, streams=1)
    api = roles.api()
    api.wait_ready()
    return api


@pytest.fixture
async def service(api: ApiProcess) -> AsyncIterator[EmbeddingService]:
    async with EmbeddingService(api.base_url, timeout_s=60) as service:
        yield service


@pytest.fixture
def command(api: ApiProcess, tmp_path: Path) -> Command:
    folder = tmp_path / "work"
    folder.mkdir()
    return Command(api.base_url, folder)

"""A server with the fake encoder, and the command that talks to it."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from embedq import EmbeddingService
from tests.integration.client.command import Command
from tests.key_leaks import leaked_keys
from tests.processes import ApiProcess, RedisServer, Roles, wait_until


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
def another_api(server: tuple[Roles, ApiProcess]) -> Iterator[Callable[..., ApiProcess]]:
    """Starts another web tier on the same queue, with other settings, which the test may kill."""
    started: list[ApiProcess] = []

    def start(**settings: Any) -> ApiProcess:
        started.append(server[0].api(**settings))
        return started[-1]

    yield start
    for api in started:
        api.stop()


@pytest.fixture(scope="module")
def slow_model(server: tuple[Roles, ApiProcess]) -> str:
    """A model whose worker is so slow that a long task can be caught while it runs."""
    roles, api = server
    roles.worker(model="slow/model", fake_tokens_per_s=200, streams=1)
    with api.client() as client:
        wait_until(lambda: client.get("/v1/models/slow/model").is_success, message="the slow model is served")
    return "slow/model"


@pytest.fixture
async def service(api: ApiProcess) -> AsyncIterator[EmbeddingService]:
    async with EmbeddingService(api.base_url, timeout_s=60) as service:
        yield service


@pytest.fixture
def command(api: ApiProcess, tmp_path: Path) -> Command:
    folder = tmp_path / "work"
    folder.mkdir()
    return Command(api.base_url, folder)

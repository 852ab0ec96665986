"""A server with the fake encoder, and the command that talks to it."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from embedq import EmbeddingService
from tests.integration.client.command import Command
from tests.key_leaks import leaked_keys
from tests.processes import ApiProcess, RedisServer, Roles


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

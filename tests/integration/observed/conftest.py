"""A whole service that is observed: its logs are JSON and every request is in them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from stack.testing import ApiProcess, Process, RedisServer, Roles, WorkerProcess
from tests.key_leaks import leaked_keys

KEY = "key-of-somebody"
OWNER = "somebody"


@dataclass(frozen=True, slots=True)
class Observed:
    """The processes of a service, and a client that has a key."""

    api: ApiProcess
    worker: WorkerProcess
    documents: WorkerProcess
    client: httpx.Client

    @property
    def processes(self) -> tuple[Process, ...]:
        return self.api, self.worker, self.documents


@pytest.fixture(scope="module")
def observed(
    start_redis: Callable[[Path], RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("observed")
    redis = start_redis(folder / "redis")
    settings: dict[str, Any] = {"log_format": "json", "access_log": "true", "storage_url": folder / "storage"}
    keys = f"{OWNER}:{sha256(KEY.encode()).hexdigest()}"
    try:
        with Roles(folder, redis.url) as roles:
            worker = roles.worker(**settings)
            documents = roles.documents(**settings)
            api = roles.api(api_keys=keys, **settings)
            api.wait_ready()
            with api.client() as client:
                client.headers["authorization"] = f"Bearer {KEY}"
                yield Observed(api, worker, documents, client)
        with redis.client() as connection:
            assert leaked_keys(connection) == []
    finally:
        redis.stop()

"""Parts of the product, for what a whole stack would hide: Redis and one API process, a worker when asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers.server import PRODUCT, Server
from stack.redis_server import default_maxmemory_bytes
from stack.testing import RedisServer, Roles
from worker_config.settings import DEFAULT_MODEL

_NO_LIMIT: dict[str, Any] = {"max_backlog_s": 86_400, "max_backlog_bulk_s": 31_536_000, "max_backlog_bytes": 2**40}


@contextmanager
def api_alone(folder: Path) -> Iterator[tuple[Server, RedisServer, Roles]]:
    """A web tier without a worker, that accepts everything; `Roles` starts a worker later."""
    redis = RedisServer(folder / "redis", unix_socket=True, maxmemory_bytes=default_maxmemory_bytes())
    try:
        redis.start()
        with Roles(folder, redis.url) as roles:
            api = roles.api(**_NO_LIMIT)
            yield Server(PRODUCT, f"{api.base_url}/v1", DEFAULT_MODEL, pids={"api": api.pid}), redis, roles
    finally:
        redis.stop()

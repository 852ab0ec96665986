"""Parts of the product, for what a whole stack would hide: Redis and one API process, a worker when asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.servers.server import PRODUCT, Server
from stack.redis_server import default_maxmemory_bytes
from stack.testing import RedisServer, Roles
from worker_config.settings import DEFAULT_MODEL

_NO_LIMIT: dict[str, Any] = {"max_backlog_s": 86_400, "max_backlog_bulk_s": 31_536_000}


@contextmanager
def api_alone(folder: Path, *, maxmemory_bytes: int | None = None) -> Iterator[tuple[Server, RedisServer, Roles]]:
    """A web tier without a worker, that accepts everything there is room for; `Roles` starts a worker later.

    `maxmemory_bytes`: of Redis, 0: no limit; None: that of a local stack.
    """
    maxmemory = default_maxmemory_bytes() if maxmemory_bytes is None else maxmemory_bytes
    redis = RedisServer(folder / "redis", unix_socket=True, maxmemory_bytes=maxmemory)
    try:
        redis.start()
        with Roles(folder, redis.url) as roles:
            api = roles.api(**_NO_LIMIT)
            yield Server(PRODUCT, f"{api.base_url}/v1", DEFAULT_MODEL, pids={"api": api.pid}), redis, roles
    finally:
        redis.stop()

"""How a worker waits for Redis before it joins the ledger: as long as it takes, and saying so once."""

import logging
import time
from collections.abc import Callable

import redis
from redis.exceptions import RedisError

from tasks.errors import RedisUnavailable
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


def join_ledger(settings: Settings, join: Callable[[], None], stop: Callable[[], bool]) -> None:
    """Calls `join` until Redis serves it, or a stop is asked for. Raises what it raises beside `RedisUnavailable`."""
    said = ""
    while not stop():
        try:
            join()
        except RedisUnavailable as error:
            if error.detail != said:
                _log.warning("waiting for Redis at %s (EMBEDQ_REDIS_URL): %s", settings.redis_address, error.detail)
            said = error.detail
            time.sleep(_RETRY_S)
        else:
            return


# Is this a Redis that keeps what it accepts? Asked once, when a worker joins.

_durability_log = logging.getLogger(__name__)

_NEEDED = {
    "appendonly": ("yes", "accepted tasks are lost when Redis dies"),
    "maxmemory-policy": ("noeviction", "a full Redis throws accepted tasks away"),
}


def warn_about_durability(client: redis.Redis) -> list[str]:
    """Logs, and returns, one warning for each setting of the server with which accepted work can be lost.

    Hosted services refuse to tell; nothing is said then.
    """
    warnings = []
    for name, (wanted, otherwise) in _NEEDED.items():
        try:
            found = client.config_get(name).get(name)
        except RedisError:
            return []
        if found is not None and found != wanted:
            warnings.append(f"Redis has {name} {found}: {otherwise}. Set it to {wanted} (docs/operations.md).")
    for warning in warnings:
        _durability_log.warning("%s", warning)
    return warnings

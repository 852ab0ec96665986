"""Is this a Redis that keeps what it accepts? Asked once, when a worker joins."""

import logging

import redis
from redis.exceptions import RedisError

_log = logging.getLogger(__name__)

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
        _log.warning("%s", warning)
    return warnings

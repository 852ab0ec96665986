"""How a worker waits for Redis before it joins the ledger: as long as it takes, and saying so once."""

import logging
import time
from collections.abc import Callable

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

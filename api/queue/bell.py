"""The bells of the web tier: sent off the event loop, and counted."""

import asyncio
import logging
from collections.abc import Callable

from redis.exceptions import RedisError

from tasks.errors import EmbedqError
from tasks.ledger import AsyncLedger, operations
from worker_config.bell import BellThread
from worker_config.celery_app import make_celery
from worker_config.settings import Settings

_log = logging.getLogger(__name__)


class Bell(BellThread):
    """Sends bells off the event loop. If one cannot be sent, idle workers are called through the ledger.

    Args:
        settings: with the Redis that carries the bells.
        count: called with the model and whether the bell went out.
    """

    def __init__(self, settings: Settings, count: Callable[[str, bool], None]) -> None:
        super().__init__(make_celery(settings), self._note)
        self._count = count
        self._call: Callable[[str], object] = lambda _: None

    def call_through(self, ledger: AsyncLedger) -> None:
        """From now on workers are called whose bell cannot be sent. The event loop runs until `close` has returned."""
        loop = asyncio.get_running_loop()

        async def call(queue: str) -> None:
            try:
                await ledger.run(operations.call_idle(queue))
            except (EmbedqError, RedisError) as error:
                _log.debug("idle workers were not called (%s)", type(error).__name__)

        self._call = lambda queue: asyncio.run_coroutine_threadsafe(call(queue), loop)

    def _note(self, queue: str, sent: bool) -> None:
        self._count(queue, sent)
        if not sent:
            self._call(queue)

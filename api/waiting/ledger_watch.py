"""Housekeeping from the API: once a second, bells for work that no worker fetches, and the end of what is overdue.

So work goes on although a bell was lost, and tasks expire although no worker lives.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable

from api.served_models import ServedModels
from tasks.errors import EmbedqError, Overloaded, SchemaMismatch, WrongRedis
from tasks.ledger.client import AsyncLedger, reason
from tasks.ledger.heartbeat import watch
from tasks.ledger.overview import overview
from tasks.ledger.read import check_schema
from tasks.ledger.redis_checks import LOST
from tasks.ledger.redis_keys import DOCUMENTS
from worker_config.wake_up import BellThread

_log = logging.getLogger(__name__)

INTERVAL_S = 1.0
_MAX_WATCHES = 200
"""Per queue and round, so that one cannot keep the others and the overview waiting. With 50, the ended results of 5,000
tasks a second pile up."""
_TOO_BUSY_ROUNDS = 5
"""In a row."""


class LedgerWatch:
    """Watches all queues, tells `ServedModels` what it sees, and survives every outage of Redis.

    Args:
        ledger: is watched.
        models: take in each overview.
        bells: are rung for work that waits.
        timed: takes the seconds that Redis needed for each overview.

    Attributes:
        mismatch: set when no role can run on this Redis; the process has been told to stop.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        models: ServedModels,
        bells: BellThread,
        timed: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._models = models
        self._bells = bells
        self._timed = timed
        self._claimed = False
        self._failing = False
        self._too_busy = 0
        self.mismatch: SchemaMismatch | WrongRedis | None = None

    async def run(self) -> None:
        """Looks once a second, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.look()

    async def look(self) -> None:
        """One round. Logs the first of several failures; never raises them."""
        try:
            await self._round()
        except (SchemaMismatch, WrongRedis) as error:
            self.mismatch = error
            os.kill(os.getpid(), signal.SIGTERM)  # `api.__main__` then exits with the code for configuration errors
        except Overloaded as error:
            # One says nothing about Redis: what is known of it stays. After several nothing is known any more.
            self._too_busy += 1
            if self._too_busy >= _TOO_BUSY_ROUNDS:
                self._models.lost(error.detail)
        except Exception as error:  # noqa: BLE001 - the watch is what notices failures; it must outlive all of them
            self._models.lost(error.detail if isinstance(error, EmbedqError) else "The queue (Redis) cannot be read.")
            self._too_busy = 0
            if not self._failing:
                _log.warning("the queue cannot be watched, trying again every second: %s", reason(error))
            self._failing = True
        else:
            if self._failing:
                _log.warning("the queue is watched again")
            self._failing = False
            self._too_busy = 0

    async def _round(self) -> None:
        await self._ledger.find_master()
        await self._ledger.require_usable()
        if await self._ledger.run(check_schema()) and self._claimed:
            _log.warning("%s", LOST)
        self._claimed = True
        began_s = time.perf_counter()
        self._models.update(await self._ledger.run(overview(self._models.own_model, DOCUMENTS)))
        self._timed(time.perf_counter() - began_s)
        for queue in (*self._models.queues(), DOCUMENTS):
            await self._watch(queue)

    async def _watch(self, queue: str) -> None:
        for _ in range(_MAX_WATCHES):
            seen = await self._ledger.run(watch(queue))
            if seen.bell_due:
                self._bells.send_bell(queue)
            if not seen.more:
                return

"""The watchdog: once a second it runs WATCH on each queue, and reads the overview for the web tier."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable

from api.queue.bell import Bell
from api.queue.served_models import ServedModels
from tasks.errors import Overloaded, SchemaMismatch, reason
from tasks.ledger import DOCUMENTS, AsyncLedger, operations

_log = logging.getLogger(__name__)

INTERVAL_S = 1.0
_MAX_WATCHES = 50
"""Per queue and round, so that one cannot keep the others and the overview waiting."""
_TOO_BUSY_ROUNDS = 5
"""In a row."""


class Watchdog:
    """Sends bells for work that no worker fetches, ends overdue tasks, and survives every outage of Redis.

    Args:
        timed: takes the seconds that Redis needed for each overview.

    Attributes:
        mismatch: set when Redis came back with another version's data; the process has been told to stop.
    """

    def __init__(
        self,
        ledger: AsyncLedger,
        registry: ServedModels,
        bell: Bell,
        timed: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._registry = registry
        self._bell = bell
        self._timed = timed
        self._schema_checked = False
        self._failing = False
        self._too_busy = 0
        self.mismatch: SchemaMismatch | None = None

    async def run(self) -> None:
        """Ticks once a second, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.tick()

    async def tick(self) -> None:
        """One round. Logs the first of several failures; never raises them."""
        try:
            await self._round()
        except SchemaMismatch as error:
            self.mismatch = error
            os.kill(os.getpid(), signal.SIGTERM)  # `api.__main__` then exits with the code for configuration errors
        except Overloaded:
            # One says nothing about Redis: what is known of it stays. After several nothing is known any more.
            _log.debug("too busy to watch the queue")
            self._too_busy += 1
            if self._too_busy >= _TOO_BUSY_ROUNDS:
                self._registry.lost()
        except Exception as error:  # noqa: BLE001 - the watchdog is what notices failures; it must outlive all of them
            self._registry.lost()
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
        if not self._schema_checked:
            await self._ledger.run(operations.check_schema())
            self._schema_checked = True
        began_s = time.perf_counter()
        self._registry.update(await self._ledger.run(operations.overview(self._registry.own_model, DOCUMENTS)))
        self._timed(time.perf_counter() - began_s)
        for queue in (*self._registry.queues(), DOCUMENTS):
            await self._watch(queue)

    async def _watch(self, queue: str) -> None:
        for _ in range(_MAX_WATCHES):
            watched = await self._ledger.run(operations.watch(queue))
            if watched.bell_due:
                self._bell.send_bell(queue)
            if not watched.more:
                return

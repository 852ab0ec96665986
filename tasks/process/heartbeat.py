"""The thread beside the streams: says that the worker lives, renews leases while work moves, and watches who hangs.

Between two beats it listens for a call through the ledger: whoever cannot send a bell wakes the idle workers by it.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from tasks.errors import RedisUnavailable, SchemaMismatch
from tasks.ledger import Ledger, operations
from tasks.ledger.redis_checks import LOST
from tasks.process.liveness import HangWatch, Progress
from tasks.process.role import Start
from tasks.process.wakeup import Wakeup

_log = logging.getLogger(__name__)

FINISH_PATIENCE_S = 2.0


class Heartbeat(threading.Thread):
    """Beats until `finish`, as often as the settings say; a worker counts as live for three beats.

    Args:
        start: of this process.
        ledger: an executor; its connection pool is shared with the streams.
        queue: whose workers this one belongs to.
        beat: the operation of one beat, with what the worker says of itself now.
        progress: of each stream.
        lease_s: how long a renewed lease lasts.
        work_hangs: whether this process does not come to an end with its work; it leaves then, and is replaced.
    """

    def __init__(
        self,
        start: Start,
        ledger: Ledger,
        queue: str,
        beat: Callable[[], operations.Operation[None]],
        progress: Sequence[Progress],
        *,
        lease_s: float,
        work_hangs: Callable[[], bool],
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._ledger = ledger
        self._queue = queue
        self._worker = start.worker_id
        self._make_beat = beat
        self._progress = progress
        self._every_s = start.settings.heartbeat_s
        self._lease_ms = int(lease_s * 1000)
        self._send_bell = partial(start.send_bell, queue)
        self._wake = start.wake
        self._calls = Wakeup(ledger, queue, "")
        self._touch = start.files.touch_beat
        self._refuse = start.files.refuse
        self._parent_hangs = HangWatch(start.files.alive_at, start.patience.parent_s)
        self._work_hangs = work_hangs
        self._done = threading.Event()
        self._away = False

    def run(self) -> None:
        """Beats at once and then regularly, and takes the worker off the list of the living at the end."""
        try:
            while not self._done.is_set():
                self._touch()
                self._turn()
                self._listen(self._every_s)
            self._calls.close()
            if not self._away:
                self._ledger.run(operations.retire(self._queue, self._worker))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread
            if self._done.is_set():
                self._away = True  # nobody waits for a Redis that hangs, and its connections are closed under us
                return
            # A worker without a heartbeat loses every lease and nobody sees why: better a new process.
            _log.critical("the heartbeat thread died of %s; leaving", type(error).__name__)
            os._exit(os.EX_SOFTWARE)

    def beat(self) -> None:
        """One look for a new master, one at the schema, one beat, one renewal, one watch.

        Raises:
            RedisUnavailable: no answer.
            SchemaMismatch: another version has claimed the Redis meanwhile.
        """
        self._ledger.find_master()
        if self._ledger.check_schema():
            _log.warning("%s", LOST)
        self._ledger.run(self._make_beat())
        for stream in self._progress:
            for token in stream.to_renew():
                self._ledger.run(operations.renew(self._queue, token, self._lease_ms))
        watched = self._ledger.run(operations.watch(self._queue))
        if watched.bell_due:
            self._send_bell()
        if watched.ready:
            self._wake()  # the bell may have failed or be lost, and the ledger believes in it for a while

    def _listen(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while (left := until - time.monotonic()) > 0 and not self._done.is_set():
            if self._away or not self._calls.try_open():
                self._done.wait(max(0.0, until - time.monotonic()))  # the failure may have taken seconds
            elif self._calls.wait(left, self._done.is_set):
                self._wake()

    def finish(self) -> None:
        """Ends the thread, which takes the worker off the list of the living; without Redis it does not wait long."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)
        if self._away or self.is_alive():
            _log.info("Redis is away; this worker's entry runs out by itself")

    def _turn(self) -> None:
        if self._parent_hangs():
            # It would hear no bell any more while this process looks healthy. A supervisor starts a new one.
            _log.critical("the parent has hung for %.0f s; leaving together", self._parent_hangs.patience_s)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(os.EX_SOFTWARE)
        if self._work_hangs():
            _log.critical("the work has stood still for too long; leaving")
            os._exit(os.EX_SOFTWARE)
        try:
            self.beat()
            if self._away:
                _log.warning("Redis is back")
            self._away = False
        except RedisUnavailable as error:
            if not self._away:
                _log.warning("Redis is unavailable, this worker goes on when it is back: %s", error.detail)
            self._away = True
        except SchemaMismatch as error:
            self._refuse(str(error))

"""The thread beside the streams: says that the worker lives, renews leases while work moves, and keeps the watch."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

from tasks.errors import RedisUnavailable
from tasks.ledger import Ledger, operations
from tasks.process.liveness import Progress
from tasks.process.run_files import ALIVE_MAX_AGE_S

_log = logging.getLogger(__name__)

FINISH_PATIENCE_S = 2.0
THREAD_DIED_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h."""


class Heartbeat(threading.Thread):
    """Beats until `finish`.

    Args:
        ledger: an executor; its connection pool is shared with the streams.
        model: the queue.
        worker: its id.
        say: the operation of one beat, with what the worker says of itself now.
        progress: for each stream, what it holds and whether it moves.
        every_s: seconds between beats; a worker counts as live for three of them.
        lease_s: how long a renewed lease lasts.
        send_bell: sends one bell message.
        wake: begins a slice of this worker, after the one that may be running.
        turned: says to the parent that this thread turns.
        parent_hangs: whether the parent's loop stands still; it is killed then, and this process with it.
        work_hangs: whether this process does not come to an end with its work; it leaves then, and is replaced.
    """

    def __init__(
        self,
        ledger: Ledger,
        model: str,
        worker: str,
        say: Callable[[], operations.Operation[None]],
        progress: Sequence[Progress],
        *,
        every_s: float,
        lease_s: float,
        send_bell: Callable[[], None],
        wake: Callable[[], None],
        turned: Callable[[], None],
        parent_hangs: Callable[[], bool],
        work_hangs: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._ledger = ledger
        self._model = model
        self._worker = worker
        self._say = say
        self._progress = progress
        self._every_s = every_s
        self._lease_ms = int(lease_s * 1000)
        self._send_bell = send_bell
        self._wake = wake
        self._turned = turned
        self._parent_hangs = parent_hangs
        self._work_hangs = work_hangs
        self._done = threading.Event()
        self._away = False

    def run(self) -> None:
        """Beats at once and then regularly, and takes the worker off the list of the living at the end."""
        try:
            while not self._done.is_set():
                self._turned()
                self._turn()
                self._done.wait(self._every_s)
            if not self._away:
                self._ledger.run(operations.retire(self._model, self._worker))
        except BaseException as error:  # noqa: BLE001 - the boundary of a thread
            if self._done.is_set():
                self._away = True  # nobody waits for a Redis that hangs, and its connections are closed under us
                return
            # A worker without a heartbeat loses every lease and nobody sees why: better a new process.
            _log.critical("the heartbeat thread died of %s; leaving", type(error).__name__)
            os._exit(THREAD_DIED_EXIT_CODE)

    def beat(self) -> None:
        """One beat, one renewal, one watch.

        Raises:
            RedisUnavailable: no answer.
        """
        self._ledger.run(self._say())
        for stream in self._progress:
            for token in stream.to_renew():
                self._ledger.run(operations.renew(self._model, token, self._lease_ms))
        seen = self._ledger.run(operations.watch(self._model))
        if seen.ring:
            self._send_bell()
        if seen.ready:
            self._wake()  # whoever should have rung may have failed, and a bell that was lost is believed for a while

    def finish(self) -> None:
        """Ends the thread, which takes the worker off the list of the living; without Redis it does not wait long."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)
        if self._away or self.is_alive():
            _log.info("Redis is away; this worker's entry runs out by itself")

    def _turn(self) -> None:
        if self._parent_hangs():
            # It would hear no bell any more while this process looks healthy. A supervisor starts a new one.
            _log.critical("the parent has hung for %.0f s; leaving together", ALIVE_MAX_AGE_S)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(THREAD_DIED_EXIT_CODE)
        if self._work_hangs():
            _log.critical("the work has stood still for too long; leaving")
            os._exit(THREAD_DIED_EXIT_CODE)
        try:
            self.beat()
            self._away = False
        except RedisUnavailable:
            if not self._away:
                _log.warning("Redis is unavailable; this worker goes on when it is back")
            self._away = True

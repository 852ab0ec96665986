"""The thread beside the streams: says that the worker lives, renews leases, and watches who hangs.

One call of one script does the first two, and the housekeeping of the queue.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from tasks.encoder.interface import ModelLoadError
from tasks.errors import RedisUnavailable, SchemaMismatch
from tasks.ledger.heartbeat import Worker, beat, join, stop
from tasks.ledger.read import check_schema
from tasks.ledger.redis_checks import LOST
from tasks.model import Model
from tasks.worker.claim_loop import Streams
from tasks.worker.process.hangs import HangWatch

_log = logging.getLogger(__name__)

BEAT_S = 3.0
_BEATS_PER_LEASE = 5
FINISH_PATIENCE_S = 2.0
RENEWED_S = 60.0
"""Far longer than a forward pass on any machine."""


class Heartbeat(threading.Thread):
    """Beats until `finish`; a worker counts as live for three beats.

    Args:
        describe: fills in what the worker says of its work now.
        also_hangs: what must move beside the streams.
        also_check: with each beat, as Redis may have been emptied; `ModelLoadError` ends the worker.
        renewed_s: without a step of a stream, after which its leases are renewed no more: others get its texts.
    """

    def __init__(
        self,
        streams: Streams,
        describe: Callable[[Worker], Worker],
        also_hangs: Sequence[HangWatch] = (),
        *,
        also_check: Callable[[], None] = lambda: None,
        renewed_s: float = RENEWED_S,
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._child, self._streams, self._describe = streams.child, streams, describe
        self._ledger, self._queue, self._also_check = streams.ledger, streams.queue, also_check
        shared, patience, lease_s = self._child.shared, self._child.patience, self._child.settings.lease_s
        self._lease_ms = int(lease_s * 1000)
        self._every_s = min(BEAT_S, lease_s / _BEATS_PER_LEASE)
        self._live_ms = int(1000 * (3 * self._every_s + 1))
        self._parent_hangs = HangWatch(lambda: shared.turns, patience.parent_s)
        self._work_hangs = [HangWatch(stream.reading, patience.work_s) for stream in streams.progress]
        self._work_hangs += also_hangs
        self._renewed = [(stream, HangWatch(stream.reading, renewed_s)) for stream in streams.progress]
        self._model: Model | None = None
        self._started_at = time.time()
        self._process = psutil.Process()
        self._told: Mapping[str, int] = {}
        self._done = threading.Event()

    def enter(self, model: Model | None) -> bool:
        """Joins the live workers of the queue with this model, or none; False: others serve another one.

        Raises:
            RedisUnavailable: no answer.
        """
        pulse = self._ledger.run(join(self._queue, self._worker(), model, self._live_ms))
        self._streams.ring_if(pulse.bell_due)
        self._model = model
        return pulse.served

    def run(self) -> None:
        """Beats at once and then regularly, and takes the worker off the list of the living at the end."""
        try:
            while not self._done.is_set():
                self._child.shared.beats += 1
                self._child.folder.keep_ready()
                self._leave_if_something_hangs()
                if self._streams.broken.is_set():
                    self._streams.finish(self._child.patience.stop_s)
                    os._exit(os.EX_SOFTWARE)
                self._turn()
                self._done.wait(self._every_s)
            if not self._streams.away:
                self._ledger.run(stop(self._queue, self._child.worker_id, self._news(self._streams.counted())))
        except Exception as error:  # noqa: BLE001 - the boundary of a thread
            if self._done.is_set():
                self._streams.unheard(error)  # nobody waits for a Redis that hangs, and connections are closed under us
                return
            # A worker without a heartbeat loses every lease and nobody sees why: better a new process.
            _log.critical("the heartbeat thread died of %s; leaving", type(error).__name__)
            os._exit(os.EX_SOFTWARE)

    def finish(self) -> None:
        """Ends the thread, which takes the worker off the list of the living; without Redis it does not wait long."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)
        if self._streams.away or self.is_alive():
            _log.info("Redis is away; this worker's entry runs out by itself")

    def _leave_if_something_hangs(self) -> None:
        if self._parent_hangs():
            # It would hear no bell any more while this process looks healthy. A supervisor starts a new one.
            _log.critical("the parent has hung for %.0f s; leaving together", self._parent_hangs.patience_s)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(os.EX_SOFTWARE)
        if True in [hangs() for hangs in self._work_hangs]:  # each is asked: one that is not measures nothing
            _log.critical("the work has stood still for too long; leaving")
            os._exit(os.EX_SOFTWARE)

    def _turn(self) -> None:
        try:
            self._beat()
        except RedisUnavailable as error:
            self._streams.unheard(error)
        except (SchemaMismatch, ModelLoadError) as error:
            self._child.shared.refuse_in_child(str(error))
        else:
            self._streams.heard()

    def _beat(self) -> None:
        self._ledger.find_master()
        if self._ledger.run(check_schema()):
            _log.warning("%s", LOST)
        self._also_check()
        now = self._streams.counted()
        pulse = self._ledger.run(
            beat(
                self._queue,
                self._worker(),
                self._model,
                self._live_ms,
                tokens=[token for stream, hangs in self._renewed if not hangs() for token in stream.tokens()],
                lease_ms=self._lease_ms,
                counts=self._news(now),
            )
        )
        self._told = now
        self._streams.ring_if(pulse.bell_due)
        # The bell may have failed or be lost, and the ledger believes in it for a while. Where another model is served
        # by now, the next claim says so.
        if pulse.ready or not pulse.served:
            self._streams.wake(rang=False)

    def _news(self, now: Mapping[str, int]) -> dict[str, int]:
        """What has been counted since the last beat that was heard."""
        return {
            name: number - self._told.get(name, 0) for name, number in now.items() if number != self._told.get(name)
        }

    def _worker(self) -> Worker:
        worker = Worker(
            id=self._child.worker_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=0,
            rss_bytes=self._process.memory_info().rss,
            dropped_bells=self._child.shared.dropped,
            refused=self._streams.refused,
            **self._child.shared.last_death(),
        )
        return self._describe(worker)

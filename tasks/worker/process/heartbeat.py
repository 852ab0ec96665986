"""The thread beside the streams: says that the worker lives, renews leases while work moves, and watches who hangs.

One call of one script does the first two, and the housekeeping of the queue.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

from tasks.errors import RedisUnavailable, SchemaMismatch
from tasks.ledger.heartbeat import Pulse, Worker, beat, stop
from tasks.ledger.read import check_schema
from tasks.ledger.redis_checks import LOST
from tasks.model import Model
from tasks.worker.commit_claim import Claims
from tasks.worker.process.child import Start
from tasks.worker.process.hangs import HangWatch, Progress

_log = logging.getLogger(__name__)

BEAT_S = 3.0
_BEATS_PER_LEASE = 5
FINISH_PATIENCE_S = 2.0


def beat_every_s(lease_s: float) -> float:
    """Between two beats: several within a lease, however short that is."""
    return min(BEAT_S, lease_s / _BEATS_PER_LEASE)


def live_ms(lease_s: float) -> int:
    """How long a worker counts as live after a beat: three may be missed."""
    return int(1000 * (3 * beat_every_s(lease_s) + 1))


class Heartbeat(threading.Thread):
    """Beats until `finish`; a worker counts as live for three beats.

    Args:
        start: of this process.
        claims: of its streams, whose connection pool it shares.
        describe: what the worker says of itself now.
        progress: of each stream.
        wake: lets the streams look for work.
        model: what it serves; None: the queue needs no model.
        also_hangs: more that must move.
    """

    def __init__(
        self,
        start: Start,
        claims: Claims,
        *,
        describe: Callable[[], Worker],
        progress: Sequence[Progress],
        wake: Callable[[], None],
        model: Model | None,
        also_hangs: Sequence[HangWatch] = (),
    ) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._start_of = start
        self._claims, self._ledger, self._queue = claims, claims.ledger, claims.queue
        self._describe = describe
        self._progress = progress
        self._wake = wake
        self._model = model
        self._lease_s = claims.lease_s
        patience = start.patience
        self._parent_hangs = HangWatch(start.shared.turns, patience.parent_s)
        self._work_hangs = [*(HangWatch(stream.reading, patience.work_s) for stream in progress), *also_hangs]
        self._told: dict[str, int] = {}
        self._done = threading.Event()

    def run(self) -> None:
        """Beats at once and then regularly, and takes the worker off the list of the living at the end."""
        try:
            while not self._done.is_set():
                self._start_of.shared.beat()
                self._start_of.folder.keep_ready()
                self._turn()
                self._done.wait(beat_every_s(self._lease_s))
            if not self._claims.away:
                self._ledger.run(stop(self._queue, self._start_of.worker_id, self._news()))
        except Exception as error:  # noqa: BLE001 - the boundary of a thread
            if self._done.is_set():
                self._claims.unheard(error)  # nobody waits for a Redis that hangs, and connections are closed under us
                return
            # A worker without a heartbeat loses every lease and nobody sees why: better a new process.
            _log.critical("the heartbeat thread died of %s; leaving", type(error).__name__)
            os._exit(os.EX_SOFTWARE)

    def beat(self) -> Pulse:
        """One look for a new master, one at the schema, and one beat.

        Raises:
            RedisUnavailable: no answer.
            SchemaMismatch: another version has claimed the Redis meanwhile.
        """
        self._ledger.find_master()
        if self._ledger.run(check_schema()):
            _log.warning("%s", LOST)
        news = self._news()
        pulse = self._ledger.run(
            beat(
                self._queue,
                self._describe(),
                self._model,
                live_ms(self._lease_s),
                tokens=[token for stream in self._progress for token in stream.to_renew()],
                lease_ms=int(self._lease_s * 1000),
                counts=news,
            )
        )
        self._told = {name: self._told.get(name, 0) + news.get(name, 0) for name in {*self._told, *news}}
        self._claims.ring_if(pulse.bell_due)
        # The bell may have failed or be lost, and the ledger believes in it for a while. Where another model is served
        # by now, the next claim says so.
        if pulse.ready or not pulse.served:
            self._wake()
        return pulse

    def finish(self) -> None:
        """Ends the thread, which takes the worker off the list of the living; without Redis it does not wait long."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)
        if self._claims.away or self.is_alive():
            _log.info("Redis is away; this worker's entry runs out by itself")

    def _news(self) -> dict[str, int]:
        """What has been counted since the last beat that was heard."""
        now, told = self._claims.counted(), self._told
        return {name: number - told.get(name, 0) for name, number in now.items() if number != told.get(name)}

    def _turn(self) -> None:
        if self._parent_hangs():
            # It would hear no bell any more while this process looks healthy. A supervisor starts a new one.
            _log.critical("the parent has hung for %.0f s; leaving together", self._parent_hangs.patience_s)
            os.kill(os.getppid(), signal.SIGKILL)
            os._exit(os.EX_SOFTWARE)
        if True in [hangs() for hangs in self._work_hangs]:  # each is asked: one that is not measures nothing
            _log.critical("the work has stood still for too long; leaving")
            os._exit(os.EX_SOFTWARE)
        try:
            self.beat()
        except RedisUnavailable as error:
            self._claims.unheard(error)
        except SchemaMismatch as error:
            self._start_of.shared.refuse_in_child(str(error))
        else:
            self._claims.heard()

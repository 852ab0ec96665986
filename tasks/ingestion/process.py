"""One process of a documents worker: streams of jobs, the driver, the sweep and the heartbeat. No Celery."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence

from tasks.errors import RedisUnavailable, StorageUnavailable
from tasks.ingestion.driver import Driver
from tasks.ingestion.job_runner import JOBS_PER_S, JobRunner
from tasks.ingestion.repeating_thread import Repeating
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import Worker
from tasks.ledger.redis_keys import DOCUMENTS, JOBS_CHANNEL
from tasks.records.storage_identity import StorageProof
from tasks.storage.storage import Storage
from tasks.storage.sweep import SWEEP_EVERY_S, Sweep
from tasks.worker.claim_loop import Streams
from tasks.worker.idle_wait import Wakeup
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.hangs import HangWatch
from tasks.worker.process.heartbeat import Heartbeat
from tasks.worker.process.register import require_usable, wait_for_redis

_log = logging.getLogger(__name__)

DRIVE_EVERY_S = 1.0
"""Between two rounds when nobody wakes the driver. A wake-up may be lost with a connection, and a worker may load the
model that an ingestion waits for."""
STREAMS = 2
"""One works for any owner, and one is kept for another than that."""


class JobWorker:
    """The storage, a heartbeat, threads that drive and sweep, streams of jobs. Lives in the Celery child."""

    def __init__(self, child: WorkerChild, storage: Storage) -> None:
        self._child = child
        settings, stop = child.settings, child.shared.stopping
        self._ledger = ledger = Ledger.connect(settings.redis_url, settings.redis_ack, settings.sentinels)
        storage = storage.proved(StorageProof(storage, ledger.run))
        self._driver = Driver(ledger, storage, settings, child.send_bell, stop)
        self._driving = Repeating("driver", self._drive, every_s=DRIVE_EVERY_S, bell=Wakeup(ledger, JOBS_CHANNEL))
        sweep = Sweep(ledger, storage, settings)
        self._sweeper = Repeating("sweep", lambda _: sweep(), every_s=SWEEP_EVERY_S)
        self._work = JobRunner(ledger, storage, settings, stop=stop)
        self._streams = Streams(child, ledger, DOCUMENTS, self._work, number=STREAMS, keeps_one=True)
        drive_hangs = HangWatch(lambda: self._driving.moves, child.patience.work_s)
        renewed_s = child.patience.work_s  # nothing interrupts a stage
        self._heartbeat = Heartbeat(self._streams, self._describe, [drive_hangs], renewed_s=renewed_s)

    @classmethod
    def start(cls, child: WorkerChild) -> Callable[[float], None]:
        """Joins the ledger: only now do its heartbeat and its ready file exist. Waits for Redis as long as it takes.

        Raises:
            StorageUnavailable: EMBEDQ_STORAGE_URL names what cannot be used here.
            SchemaMismatch: the data in Redis is another version's.
            WrongRedis: Redis cannot serve.
            Stopping: a stop was asked for while it waited.
        """
        worker = cls(child, Storage.open(child.settings.storage_url, make=False))
        worker.join()
        return worker.leave

    def join(self) -> None:
        """Takes over what a previous incarnation held, and says that the worker is ready."""
        wait_for_redis(self._child, self._register)
        self._heartbeat.start()
        self._driving.start()
        self._sweeper.start()
        self._child.folder.set_ready({"queue": DOCUMENTS})
        self._streams.wake(rang=False)
        place = self._child.settings.storage_url.partition("?")[0].rpartition("@")[2]  # without anybody's secret
        _log.info("ready: documents, in the storage %s", place)

    def leave(self, patience_s: float) -> None:
        """A clean stop: no longer live."""
        self._sweeper.ask_to_finish()  # it may be left in the middle, and nobody waits for it
        self._streams.finish(patience_s)
        self._driving.finish()
        with contextlib.suppress(RedisUnavailable):
            self._driver.leave()
        self._heartbeat.finish()
        self._ledger.close()

    def _drive(self, moved: Callable[[], None]) -> None:
        self._driver.moved = moved
        self._driver()

    def _register(self) -> Sequence[str]:
        warnings = require_usable(self._ledger, DOCUMENTS)
        self._heartbeat.enter(None)
        return warnings

    def _describe(self, worker: Worker) -> Worker:
        storage_error, since = self._work.storage_error
        trouble, trouble_since = self._sweeper.storage_trouble or ("", 0.0)
        return dataclasses.replace(
            worker,
            rate=JOBS_PER_S,
            items=self._work.done,
            storage_error=storage_error or (StorageUnavailable.code if trouble else ""),
            storage_error_since=since or trouble_since,
            storage_detail=trouble,
        )

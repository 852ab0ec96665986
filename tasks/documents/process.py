"""One process of a documents worker: a stream of jobs, a stepper, the sweep and the heartbeat. No Celery."""

import logging
import os
import socket
import time
from functools import partial
from typing import Self

import psutil

from tasks.documents.claims import JOBS_PER_S, JobWork
from tasks.documents.context import StepContext
from tasks.documents.jobs import JOBS
from tasks.documents.stepper import STEPS, SWEEPS, Stepper
from tasks.documents.sweep import SWEEP_EVERY_S
from tasks.errors import RedisUnavailable, StorageUnavailable
from tasks.ledger.client import Ledger
from tasks.ledger.heartbeat import Worker, join
from tasks.ledger.redis_keys import DOCUMENTS, STEPS_CHANNEL
from tasks.records.storage_identity import StorageProof
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import Streams
from tasks.worker.commit_claim import Claims
from tasks.worker.idle_wait import Wakeup
from tasks.worker.process.child import Start
from tasks.worker.process.hangs import HangWatch, Progress
from tasks.worker.process.heartbeat import Heartbeat, live_ms
from tasks.worker.process.register import require_usable, wait_for

_log = logging.getLogger(__name__)


class JobWorker:
    """The storage, a heartbeat, threads for steps and the sweep, one stream of jobs. Lives in the Celery child."""

    def __init__(self, start: Start, storage: Storage) -> None:
        self._start = start
        self._settings = settings = start.settings
        self._started_at = time.time()
        self._process = psutil.Process()
        self._ledger = ledger = Ledger.connect(settings.redis_url, settings.redis_ack)
        storage = storage.proved(StorageProof(storage, ledger.run))
        stop = start.shared.stopping
        context = StepContext(ledger, storage, settings, start.send_bell, stop)
        self._stepper = Stepper(context, STEPS, bell=Wakeup(ledger, STEPS_CHANNEL))
        self._sweeper = Stepper(context, SWEEPS, every_s=SWEEP_EVERY_S, name="sweeper")
        self._claims = Claims(
            ledger,
            DOCUMENTS,
            worker=start.worker_id,
            lease_s=settings.lease_s,
            stopping=stop,
            send_bell=start.send_bell,
            traces=start.traces,
        )
        progress = Progress(partial(start.shared.work_on, 0))
        self._work = JobWork(ledger, storage, settings, jobs=JOBS, progress=progress, stop=stop)
        self.streams = Streams(self._claims, [(self._work, progress)])
        self._heartbeat = Heartbeat(
            start,
            self._claims,
            describe=self._describe,
            progress=[progress],
            wake=partial(self.streams.wake, rang=False),
            model=None,
            also_hangs=[HangWatch(lambda: self._stepper.moves, start.patience.work_s)],
        )

    @classmethod
    def start(cls, start: Start) -> Self:
        """Opens the storage and joins the ledger: only now do its heartbeat and its ready file exist.

        Waits for both as long as it takes: neither is this worker's fault, and it harms nobody by waiting.

        Raises:
            SchemaMismatch: the data in Redis is another version's.
            WrongRedis: Redis cannot serve.
            Stopping: a stop was asked for while it waited.
        """
        open_storage = partial(Storage.open, start.settings.storage_url, make=False)
        storage = wait_for("the storage", open_storage, while_raises=StorageUnavailable, stop=start.shared.stopping)
        worker = cls(start, storage)
        worker.join()
        return worker

    def join(self) -> None:
        """Takes over what a previous incarnation held, and says that the worker is ready."""
        redis = f"Redis at {self._settings.redis_address} (EMBEDQ_REDIS_URL)"
        wait_for(redis, self._register, while_raises=RedisUnavailable, stop=self._start.shared.stopping)
        self._heartbeat.start()
        self._stepper.start()
        self._sweeper.start()
        self._start.folder.set_ready({"queue": DOCUMENTS})
        self.streams.wake(rang=False)
        _log.info("ready: documents")

    def leave(self, patience_s: float) -> None:
        """A clean stop: no longer live."""
        self._sweeper.ask_to_finish()  # it may be left in the middle, and nobody waits for it
        self.streams.finish(patience_s)
        self._stepper.finish()
        self._heartbeat.finish()
        self._ledger.close()

    def _register(self) -> None:
        require_usable(self._ledger, DOCUMENTS)
        pulse = self._ledger.run(join(DOCUMENTS, self._describe(), None, live_ms(self._settings.lease_s)))
        self._claims.ring_if(pulse.bell_due)

    def _describe(self) -> Worker:
        storage_error, since = self._work.storage_error
        trouble, trouble_since = self._sweeper.storage_trouble or ("", 0.0)
        return Worker(
            id=self._start.worker_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=JOBS_PER_S,
            rss_bytes=self._process.memory_info().rss,
            items=self._work.done,
            dropped_bells=self._start.shared.dropped,
            storage_error=storage_error or (StorageUnavailable.code if trouble else ""),
            storage_error_since=since or trouble_since,
            storage_detail=trouble,
            refused=self._claims.refused,
        )

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
from tasks.documents.stepper import STEPS, STEPS_STREAM, SWEEPS, Stepper
from tasks.documents.sweep import SWEEP_EVERY_S
from tasks.drain.commit import Committer
from tasks.drain.loop import Consumer, Drain
from tasks.drain.suspects import Suspects
from tasks.errors import RedisUnavailable, StorageUnavailable
from tasks.gate import ALONE
from tasks.ledger import DOCUMENTS, Ledger, WorkerEntry, operations
from tasks.process.heartbeat import Heartbeat
from tasks.process.joining import require_usable, take_over, wait_for
from tasks.process.liveness import HangWatch, Progress, any_hangs
from tasks.process.role import Start
from tasks.process.wakeup import Wakeup
from tasks.records.storage_identity import StorageProof
from tasks.storage.storage import Storage

_log = logging.getLogger(__name__)

JOB_HANGS_AFTER_S = 300.0


class JobWorker:
    """The storage, a heartbeat, threads for steps and the sweep, one stream of jobs. Lives in the Celery child."""

    def __init__(self, start: Start, storage: Storage) -> None:
        self._start = start
        self._settings = settings = start.settings
        self._started_at = time.time()
        self._process = psutil.Process()
        self._ledger = ledger = Ledger.connect(settings.redis_url, settings.redis_ack)
        storage = storage.proved(StorageProof(storage, ledger.run))
        context = StepContext(ledger, storage, settings, start.send_bell, start.stop)
        self._stepper = Stepper(context, STEPS, bell=Wakeup(ledger, DOCUMENTS, STEPS_STREAM))
        self._sweeper = Stepper(context, SWEEPS, every_s=SWEEP_EVERY_S, name="sweeper")
        progress = Progress()
        committer = Committer(ledger, DOCUMENTS, patience_s=settings.lease_s, stop=start.stop)
        self._work = JobWork(
            ledger,
            storage,
            settings,
            jobs=JOBS,
            committer=committer,
            progress=progress,
            stop=start.stop,
            send_bell=start.send_bell,
        )
        consumer = Consumer(
            ledger=ledger,
            queue=DOCUMENTS,
            worker=start.worker_id,
            slice_s=settings.slice_s,
            lease_s=settings.lease_s,
            committer=committer,
            suspects=Suspects(ALONE),
            send_bell=partial(start.send_bell, DOCUMENTS),
            stop=start.stop,
            traces=start.traces,
        )
        self._drain = Drain(consumer, 0, self._work)
        step_hangs = HangWatch(lambda: self._stepper.moves, JOB_HANGS_AFTER_S)
        self._heartbeat = Heartbeat(
            start,
            ledger,
            DOCUMENTS,
            self._beat,
            [progress],
            lease_s=settings.lease_s,
            work_hangs=any_hangs([progress.hang_watch(JOB_HANGS_AFTER_S, outside_s=JOB_HANGS_AFTER_S), step_hangs]),
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
        start.files.clear_ready()
        open_storage = partial(Storage.open, start.settings.storage_url, make=False)
        storage = wait_for("the storage", open_storage, while_raises=StorageUnavailable, stop=start.stop)
        worker = cls(start, storage)
        worker.join()
        return worker

    def join(self) -> None:
        """Takes over what a previous incarnation held, and says that the worker is ready."""
        redis = f"Redis at {self._settings.redis_address} (EMBEDQ_REDIS_URL)"
        wait_for(redis, self._register, while_raises=RedisUnavailable, stop=self._start.stop)
        self._heartbeat.start()
        self._stepper.start()
        self._sweeper.start()
        self._start.files.set_ready({"queue": DOCUMENTS})
        _log.info("ready: documents")

    def run_slice(self) -> None:
        """One slice of work; as long as its last job takes."""
        self._drain.run_slice()

    def leave(self) -> None:
        """A clean stop: no longer ready, no longer live."""
        self._start.files.clear_ready()
        self._sweeper.ask_to_finish()  # it may be left in the middle, and nobody waits for it
        self._stepper.finish()
        self._heartbeat.finish()
        self._drain.close()
        self._ledger.close()

    def _register(self) -> None:
        require_usable(self._ledger, DOCUMENTS)
        take_over(self._ledger, DOCUMENTS, self._start)

    def _beat(self) -> operations.Operation[None]:
        storage_error, since = self._work.storage_error
        trouble, trouble_since = self._sweeper.storage_trouble or ("", 0.0)
        entry = WorkerEntry(
            id=self._start.worker_id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=JOBS_PER_S,
            rss_bytes=self._process.memory_info().rss,
            items=self._work.done,
            dropped_bells=self._start.files.dropped_bells(),
            storage_error=storage_error or (StorageUnavailable.code if trouble else ""),
            storage_error_since=since or trouble_since,
            storage_detail=trouble,
        )
        return operations.beat(DOCUMENTS, entry, int(self._settings.heartbeat_ttl_s * 1000))

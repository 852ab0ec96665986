"""Everything one documents worker process owns. No Celery: the entry file hands in what it needs."""

import logging
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Self

import psutil

from tasks.documents.claims import JobWork
from tasks.documents.context import StepContext
from tasks.documents.jobs import JOBS
from tasks.documents.stepper import STEPS, SWEEPS, Stepper
from tasks.drain.commit import Settlement
from tasks.drain.loop import Drain, DrainLimits
from tasks.drain.rate import Rate
from tasks.drain.suspects import Suspects
from tasks.drain.wakeup import Wakeup
from tasks.errors import StorageUnavailable
from tasks.gate import ALONE
from tasks.ledger import DOCUMENTS, Ledger, WorkerEntry, operations
from tasks.process.heartbeat import Heartbeat
from tasks.process.joining import join_ledger
from tasks.process.liveness import Progress, still_watch
from tasks.process.run_files import RunFiles
from tasks.storage.storage import Storage
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

RETRY_S = 1.0
JOB_HANGS_AFTER_S = 300.0
JOBS_PER_S = 1.0
"""What the worker says of its speed: jobs have a cost of 1 each."""
_UNIT_S = 1.0
_JOBS_PER_CLAIM = 1
"""What has ended must not wait for the next one, nor be done again because that one was refused."""
_SWEEP_EVERY_S = 0.5


class JobWorker:
    """The storage, a heartbeat, threads for steps and the sweep, one stream of jobs. Lives in the Celery child.

    Args:
        settings: of the process.
        worker_id: the same for every child of one parent.
        storage: where files and parts are.
        stop: whether to stop.
        ring: sends the bell of a queue; never raises.
        wake: begins a slice without a bell.
    """

    def __init__(
        self,
        settings: Settings,
        worker_id: str,
        storage: Storage,
        *,
        stop: Callable[[], bool],
        ring: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._id = worker_id
        self._stop = stop
        self._ring = ring
        self._wake = wake
        self._files = RunFiles(settings.run_dir)
        self._started_at = time.time()
        self._process = psutil.Process()
        self._ledger = Ledger.connect(settings.redis_url)
        self._progress = Progress()
        self._wakeup = Wakeup(self._ledger, DOCUMENTS, f"{worker_id}/0")
        self._settlement = Settlement(self._ledger, DOCUMENTS, patience_s=settings.lease_s, stop=stop)
        self._work = self._make_work(storage)
        self._drain = self._make_drain()
        context = StepContext(self._ledger, storage, settings, ring, stop)
        self._stepper, self._sweeper = Stepper(context, STEPS), _sweeper(context)
        self._heartbeat = self._make_heartbeat()

    @classmethod
    def start(
        cls,
        settings: Settings,
        worker_id: str,
        *,
        stop: Callable[[], bool],
        ring: Callable[[str], None],
        wake: Callable[[], None],
    ) -> Self:
        """Opens the storage and joins the ledger: only now do its heartbeat and its ready file exist.

        Waits for both as long as it takes: neither is this worker's fault, and it harms nobody by waiting.

        Raises:
            SchemaMismatch: the data in Redis is another version's.
        """
        RunFiles(settings.run_dir).clear_ready()
        worker = cls(settings, worker_id, _opened(settings.storage_url), stop=stop, ring=ring, wake=wake)
        worker.join()
        return worker

    def join(self) -> None:
        """Takes over what a previous incarnation held, and says that the worker is ready."""
        join_ledger(self._settings, self._register, self._stop)
        self._heartbeat.start()
        self._stepper.start()
        self._sweeper.start()
        self._files.set_ready({"queue": DOCUMENTS})
        _log.info("ready: documents")

    def run_slice(self) -> None:
        """One slice of work; as long as its last job takes."""
        self._drain.run_slice()

    def leave(self) -> None:
        """A clean stop: no longer ready, no longer live."""
        self._files.clear_ready()
        self._sweeper.ask_to_finish()  # a sweep may be left in the middle, and nobody waits for it
        self._stepper.finish()
        self._heartbeat.finish()
        self._wakeup.close()
        self._ledger.close()

    def _register(self) -> None:
        self._ledger.run(operations.check_schema())
        self._ledger.run(operations.abandon(DOCUMENTS, self._id))

    def _make_work(self, storage: Storage) -> JobWork:
        return JobWork(
            self._ledger,
            storage,
            self._settings,
            jobs=JOBS,
            settlement=self._settlement,
            progress=self._progress,
            stop=self._stop,
            ended=lambda: self._stepper.nudge(),  # noqa: PLW0108 - it is made after this
        )

    def _make_drain(self) -> Drain:
        return Drain(
            self._ledger,
            DOCUMENTS,
            f"{self._id}/0",
            DrainLimits(self._settings.slice_s, self._settings.lease_s, _UNIT_S, max_units=_JOBS_PER_CLAIM),
            wakeup=self._wakeup,
            work=self._work,
            rate=Rate(JOBS_PER_S),
            settlement=self._settlement,
            suspects=Suspects(ALONE),
            single=True,
            hears=True,
            send_bell=partial(self._ring, DOCUMENTS),
            stop=self._stop,
        )

    def _make_heartbeat(self) -> Heartbeat:
        jobs = self._progress.hang_watch(JOB_HANGS_AFTER_S, outside_s=JOB_HANGS_AFTER_S)
        steps = still_watch(lambda: self._stepper.moves, JOB_HANGS_AFTER_S)
        return Heartbeat(
            self._ledger,
            DOCUMENTS,
            self._id,
            self._say,
            [self._progress],
            every_s=self._settings.heartbeat_s,
            lease_s=self._settings.lease_s,
            send_bell=partial(self._ring, DOCUMENTS),
            wake=self._wake,
            turned=self._files.touch_beat,
            parent_hangs=self._files.hang_watch(),
            work_hangs=lambda: any([jobs(), steps() and self._stepper.moves is not None]),
        )

    def _say(self) -> operations.Operation[None]:
        entry = WorkerEntry(
            id=self._id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_at=self._started_at,
            rate=JOBS_PER_S,
            rss_bytes=self._process.memory_info().rss,
            forward_passes=0,
            items=self._work.done,
            tokens=0,
            padded_tokens=0,
        )
        return operations.beat(DOCUMENTS, entry, int(self._settings.heartbeat_ttl_s * 1000))


def _sweeper(context: StepContext) -> Stepper:
    return Stepper(context, SWEEPS, every_s=_SWEEP_EVERY_S, name="sweeper")


def _opened(url: str) -> Storage:
    said = False
    while True:  # a stop ends this process, it has nothing to give back yet
        try:
            return Storage.open(url)
        except StorageUnavailable as error:
            if not said:
                _log.warning("waiting for the storage: %s", error.detail)
            said = True
            time.sleep(RETRY_S)

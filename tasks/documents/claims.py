"""What a documents worker does with one claim: run its job, commit what that returned, or give it back."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from tasks.documents.context import JobContext, JobEnd, Pace
from tasks.documents.jobs import Job
from tasks.documents.rounds import place_of
from tasks.drain.commit import Committer
from tasks.drain.work import ClaimOnline, ClaimSize
from tasks.errors import DiskFull, EmbedqError, InternalError, RedisUnavailable, StorageUnavailable, Unavailable
from tasks.item import TextError
from tasks.ledger import DOCUMENTS, Claim, ClaimedUnit, Finished, Ledger, OutcomeKind, Then, operations
from tasks.process.liveness import Progress
from tasks.process.stop import Stopping
from tasks.records.document_jobs import JOB_COST, JobCall
from tasks.storage.storage import Storage
from worker_config.settings import Settings
from worker_config.subject import SpanAttributes, about_tasks

_log = logging.getLogger(__name__)

JOBS_PER_S = 1.0
"""The speed of a worker for admission: a job is claimed at a cost of 1, and charged for the seconds that it took."""
_NEXT_JOB = ClaimSize(bulk_cost=1, online_cost=1, large_cost=1, max_units=1, rate=JOBS_PER_S)
"""One, whatever the budget: a job that has ended must not wait for the next one, nor be done again because that one
was refused."""
OUTAGE_PAUSE_S = 1.0
_STOP_CHECK_S = 0.1
_USUAL = Pace()


class JobWork:
    """Runs the jobs of claims, one after the other. One thread. `send_bell` never raises."""

    def __init__(
        self,
        ledger: Ledger,
        storage: Storage,
        settings: Settings,
        *,
        jobs: Mapping[str, Job],
        committer: Committer,
        progress: Progress,
        stop: Callable[[], bool],
        send_bell: Callable[[str], None] = lambda _: None,
        pace: Pace = _USUAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._storage = storage.reporting(progress.step)  # a large file is sent for longer than work may stand still
        self._settings = settings
        self._jobs = jobs
        self._committer = committer
        self._progress = progress
        self._stop = stop
        self._send_bell = send_bell
        self._pace = pace
        self._clock = clock
        self.done = 0
        self._waits_for = ""
        self.storage_error: tuple[str, float] = ("", 0.0)
        """Code of what makes a job wait, and since when in Unix seconds; "" and 0.0 for nothing."""

    def claim_size(self, _left_s: float) -> ClaimSize:
        """See `Work.claim_size`: one job, however long it takes."""
        return _NEXT_JOB

    def __call__(self, claim: Claim, _claim_online: ClaimOnline) -> bool:
        """See `Work.__call__`; nothing interrupts a job."""
        with about_tasks(claim.task_ids):
            return self._end(claim)

    def _end(self, claim: Claim) -> bool:
        self._progress.hold(claim.token)
        try:
            for unit in claim.units:
                began_ns = time.time_ns()
                with self._progress.outside():  # its limit is the heartbeat's patience with work that hangs
                    finished, then = self._charged(unit, claim.token)
                if claim.trace is not None:
                    claim.trace.add("job", began_ns, _described(unit, finished))
                for queue in self._committer.commit_job(claim, finished, then):
                    self._send_bell(queue)
                self.done += 1
            self.storage_error, self._waits_for = ("", 0.0), ""
        except Stopping:
            self._committer.give_back(claim)
        except Unavailable as error:
            if error.detail != self._waits_for:
                _log.warning("a job waits: %s", error.detail)
            self._waits_for = error.detail
            if isinstance(error, StorageUnavailable | DiskFull):
                self.storage_error = (error.code, self.storage_error[1] or time.time())
            self._committer.give_back(claim)
            self._pause()
            return False
        except Exception as error:  # noqa: BLE001 - MemoryError must never reach Celery, it would stop the whole worker
            _log.error("a job failed with %s at %s", type(error).__name__, place_of(error))
            self._committer.lose(claim)
        finally:
            self._progress.drop(claim.token)
        return True

    def _charged(self, unit: ClaimedUnit, token: str) -> tuple[Finished, Then]:
        """What came of it. Its owner pays for the time it took: a job is claimed at a cost that is the same for all."""
        began = self._clock()
        finished = self._finished(unit, token)
        seconds = round(self._clock() - began)
        if seconds > JOB_COST:
            with suppress(RedisUnavailable):  # the next job of this owner comes too early: that is all
                self._ledger.run(operations.charge(DOCUMENTS, unit.task_id, seconds - JOB_COST))
        return finished

    def _finished(self, unit: ClaimedUnit, token: str) -> tuple[Finished, Then]:
        try:
            end = self._run(unit, token)
        except Unavailable:  # however long: the job waits for it
            raise
        except EmbedqError as error:
            return failed_job(unit, error), Then()
        try:
            return Finished(unit, OutcomeKind.JOB, end.outcome), end.then
        except ValueError:  # it would fail in the same way each time
            return failed_job(unit, InternalError("A job returned no JSON object.")), Then()

    def _run(self, unit: ClaimedUnit, token: str) -> JobEnd:
        call = JobCall.from_payload(unit.payload)
        job = self._jobs.get(call.kind)
        if job is None:
            raise InternalError(f"This version knows no job {call.kind!r}.")
        context = JobContext(
            ledger=self._ledger,
            storage=self._storage,
            settings=self._settings,
            token=token,
            progress=self._moved,
            stop=self._stop,
            pace=self._pace,
        )
        self._moved()
        end = job(context, call.id)
        return end if isinstance(end, JobEnd) else JobEnd(end)

    def _moved(self) -> None:
        self._progress.step()
        if self._stop():
            raise Stopping

    def _pause(self) -> None:
        until = time.monotonic() + OUTAGE_PAUSE_S
        while time.monotonic() < until and not self._stop():
            time.sleep(_STOP_CHECK_S)


def _described(unit: ClaimedUnit, finished: Finished) -> SpanAttributes:
    error = next((error.code for error in finished.errors.values()), "")
    return {"embedq.job.kind": JobCall.from_payload(unit.payload).kind, **({"error.type": error} if error else {})}


def failed_job(unit: ClaimedUnit, error: EmbedqError) -> Finished:
    """The outcome of a job that cannot be done."""
    return Finished(unit, OutcomeKind.JOB, b"", errors={unit.first: TextError(error.code, error.detail)})

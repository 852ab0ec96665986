"""What a documents worker does with one claim: run its job, commit what that returned, or give it back."""

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from tasks.documents.context import JobContext, Pace
from tasks.documents.jobs import Job
from tasks.documents.rounds import place_of
from tasks.errors import DiskFull, EmbedqError, InternalError, StorageUnavailable, Unavailable
from tasks.item import TextError
from tasks.ledger.claim import Claim
from tasks.ledger.client import Ledger
from tasks.ledger.task import Outcome, Piece
from tasks.records.document_jobs import JOB_COST, JobCall
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import ClaimSize, Stream
from tasks.worker.process.hangs import Progress
from tasks.worker.process.stop import Stopping
from worker_config.settings import Settings
from worker_config.subject import SpanAttributes

_log = logging.getLogger(__name__)

JOBS_PER_S = 1.0
"""The speed of a worker for admission: a job is claimed at a cost of 1, and charged for the seconds that it took."""
_NEXT_JOB = ClaimSize(bulk_cost=JOB_COST, online_cost=JOB_COST, rate=JOBS_PER_S)
"""One: a job that has ended must not wait for the next one, nor be done again because that one was refused."""
OUTAGE_PAUSE_S = 1.0
_STOP_CHECK_S = 0.1
_USUAL = Pace()


class JobWork:
    """Runs the jobs of claims, one after the other. One thread; a `Work` of a stream."""

    def __init__(
        self,
        ledger: Ledger,
        storage: Storage,
        settings: Settings,
        *,
        jobs: Mapping[str, Job],
        stop: Callable[[], bool],
        pace: Pace = _USUAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger = ledger
        self._storage = storage
        self._storages: dict[Progress, Storage] = {}
        self._settings = settings
        self._jobs = jobs
        self._stop = stop
        self._pace = pace
        self._clock = clock
        self.done = 0
        self._waits_for = ""
        self.storage_error: tuple[str, float] = ("", 0.0)
        """Code of what makes a job wait, and since when in Unix seconds; "" and 0.0 for nothing."""

    def claim_size(self) -> ClaimSize:
        """See `Work.claim_size`: one job, however long it takes."""
        return _NEXT_JOB

    def __call__(self, claim: Claim, stream: Stream) -> None:
        """See `Work.__call__`; nothing interrupts a job. Its owner pays for the time that it took."""
        (piece,) = claim.pieces
        began, began_ns = self._clock(), time.time_ns()
        try:
            outcome = self._outcome(piece, claim.token, stream.progress)
        except Unavailable as error:  # however long: the job waits for it
            self._waits(error)
            stream.give_back(claim)
            self._pause()
            return
        except Exception as error:
            if not isinstance(error, Stopping):
                _log.error("a job failed with %s at %s", type(error).__name__, place_of(error))
            raise
        if claim.trace is not None:
            claim.trace.add("job", began_ns, _described(piece, outcome))
        # It was claimed at a cost that is the same for all.
        stream.commit(claim, [outcome], last=True, spent=max(0, round(self._clock() - began) - JOB_COST))
        self.done += 1
        self.storage_error, self._waits_for = ("", 0.0), ""

    def _outcome(self, piece: Piece, token: str, progress: Progress) -> Outcome:
        try:
            returned = self._run(piece, token, progress)
        except Unavailable:
            raise
        except EmbedqError as error:
            return failed_job(piece, error)
        if not returned.startswith(b"{"):  # it would fail in the same way each time
            return failed_job(piece, InternalError("A job returned no JSON object."))
        return Outcome(piece, returned)

    def _run(self, piece: Piece, token: str, progress: Progress) -> bytes:
        call = JobCall.from_payload(piece.payload)
        job = self._jobs.get(call.kind)
        if job is None:
            raise InternalError(f"This version knows no job {call.kind!r}.")
        context = JobContext(
            ledger=self._ledger,
            storage=self._reporting(progress),
            settings=self._settings,
            token=token,
            progress=partial(self._moved, progress),
            stop=self._stop,
            pace=self._pace,
        )
        self._moved(progress)
        return job(context, call.id)

    def _reporting(self, progress: Progress) -> Storage:
        """The storage, of which a stream hears that a large file is sent: that takes longer than work may stand still.

        One for all jobs of the stream: what they remember of the storage goes with it.
        """
        return self._storages.setdefault(progress, self._storage.reporting(progress.step))

    def _moved(self, progress: Progress) -> None:
        progress.step()
        if self._stop():
            raise Stopping

    def _waits(self, error: Unavailable) -> None:
        if error.detail != self._waits_for:
            _log.warning("a job waits: %s", error.detail)
        self._waits_for = error.detail
        if isinstance(error, StorageUnavailable | DiskFull):
            self.storage_error = (error.code, self.storage_error[1] or time.time())

    def _pause(self) -> None:
        until = time.monotonic() + OUTAGE_PAUSE_S
        while time.monotonic() < until and not self._stop():
            time.sleep(_STOP_CHECK_S)


def _described(piece: Piece, outcome: Outcome) -> SpanAttributes:
    error = next((error.code for error in outcome.errors.values()), "")
    return {"embedq.job.kind": JobCall.from_payload(piece.payload).kind, **({"error.type": error} if error else {})}


def failed_job(piece: Piece, error: EmbedqError) -> Outcome:
    """The outcome of a job that cannot be done."""
    return Outcome(piece, b"", errors={piece.first: TextError(error.code, error.detail)})

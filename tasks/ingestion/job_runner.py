"""What a documents worker does with one claim: runs a stage of a job, and commits what that returned."""

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import orjson

from tasks.batches.stages import assemble_output, check_file
from tasks.errors import (
    DiskFull,
    EmbedqError,
    InternalError,
    NotReady,
    RedisUnavailable,
    SinkUnavailable,
    StorageUnavailable,
    Unavailable,
)
from tasks.ingestion.context import USUAL_PACE, Pace, StageContext
from tasks.ingestion.stages.finish import finish
from tasks.ingestion.stages.list_documents import list_documents
from tasks.ingestion.stages.load_page import load_page
from tasks.ingestion.stages.parse_page import parse_page
from tasks.item import TextError
from tasks.ledger.claim import Claim
from tasks.ledger.client import Ledger
from tasks.ledger.task import Outcome, Piece
from tasks.records.batches import Batch, BatchRecord, read_batch
from tasks.records.ingestions import Ingestion, IngestionRecord, read_ingestion
from tasks.records.jobs import Stage
from tasks.records.stage_tasks import JOB_COST, StageCall
from tasks.storage.storage import Storage
from tasks.worker.claim_loop import ClaimSize, Stream
from tasks.worker.process.hangs import Progress
from tasks.worker.process.stop import Stopping
from worker_config.settings import Settings
from worker_config.telemetry import SpanAttributes

_log = logging.getLogger(__name__)

JOBS_PER_S = 1.0
"""The speed of a worker for admission: a stage is claimed at a cost of 1, and charged for the seconds that it took."""
_NEXT = ClaimSize(bulk_cost=JOB_COST, online_cost=JOB_COST, rate=JOBS_PER_S)
"""One: what has ended must not wait for the next one, nor be done again because that one was refused."""

RunStage: TypeAlias = Callable[[StageContext], Mapping[str, Any]]
"""Returns JSON. It may be run more than once, by several workers and at the same time, and changes nothing that another
run needs: what is to change is what it returns, which only one run commits."""

STAGES: dict[tuple[str, Stage], RunStage] = {
    ("batch", Stage.PARSE): check_file,
    ("batch", Stage.LOAD): assemble_output,
    ("ingestion", Stage.LIST): list_documents,
    ("ingestion", Stage.PARSE): parse_page,
    ("ingestion", Stage.LOAD): load_page,
    ("ingestion", Stage.FINISH): finish,
}
_READ: dict[str, Callable[[str], Any]] = {BatchRecord.KIND: read_batch, IngestionRecord.KIND: read_ingestion}
# The first that fits.
_AWAY: Mapping[type[Unavailable], str] = {
    SinkUnavailable: "sink",
    DiskFull: "disk_full",
    StorageUnavailable: "storage",
    NotReady: "model",
    Unavailable: "worker",  # it lacks something itself: no process could be started
}


def away(error: Unavailable) -> str:
    """In a word what is away."""
    return next(word for kind, word in _AWAY.items() if isinstance(error, kind))


class JobRunner:
    """Runs the stages of claims. A `Work` of streams, which run theirs at the same time."""

    def __init__(
        self,
        ledger: Ledger,
        storage: Storage,
        settings: Settings,
        *,
        stop: Callable[[], bool],
        pace: Pace = USUAL_PACE,
    ) -> None:
        self._ledger, self._storage, self._settings = ledger, storage, settings
        self._stop, self._pace = stop, pace
        self._storages: dict[Progress, Storage] = {}
        self.done = 0
        self.storage_error: tuple[str, float] = ("", 0.0)
        """Code of what the storage lacks, and since when in Unix seconds; "" and 0.0 for nothing."""

    def claim_size(self) -> ClaimSize:
        """See `Work.claim_size`: one stage, however long it takes."""
        return _NEXT

    def __call__(self, claim: Claim, stream: Stream) -> None:
        """See `Work.__call__`; nothing interrupts a stage. Its owner pays for the time that it took."""
        (piece,) = claim.pieces
        began, began_ns = time.monotonic(), time.time_ns()
        try:
            outcome = self.outcome(
                piece, claim.token, self._reporting(stream.progress), partial(self._moved, stream.progress)
            )
        except RedisUnavailable:  # nobody can be told
            stream.give_back(claim)
            return
        except Exception as error:
            if not isinstance(error, Stopping):
                _log.error("a job failed with %s at %s", type(error).__name__, place_of(error))
            raise
        if claim.trace is not None:
            claim.trace.add("job", began_ns, _described(piece, outcome))
        # It was claimed at a cost that is the same for all.
        stream.commit(claim, [outcome], last=True, spent=max(0, round(time.monotonic() - began) - JOB_COST))
        self.done += 1

    def outcome(self, piece: Piece, token: str, storage: Storage, progress: Callable[[], None]) -> Outcome:
        """What a stage has come to; `{"away": …}` where it found something away, of a sink with the reason.

        Raises:
            RedisUnavailable: nobody can be told.
        """
        try:
            progress()
            made = self._run(StageCall.from_payload(piece.payload), token, storage, progress)
        except RedisUnavailable:
            raise
        except Unavailable as error:
            _log.warning("a job waits: %s", error.detail)
            if isinstance(error, StorageUnavailable | DiskFull):
                self.storage_error = (error.code, self.storage_error[1] or time.time())
            why = {"why": error.detail} if isinstance(error, SinkUnavailable) else {}
            return Outcome(piece, orjson.dumps({"away": away(error), **why}))
        except EmbedqError as error:
            return _failed(piece, error)
        self.storage_error = ("", 0.0)
        return Outcome(piece, orjson.dumps(made))

    def _run(self, call: StageCall, token: str, storage: Storage, progress: Callable[[], None]) -> Mapping[str, Any]:
        stage = STAGES.get((call.kind, call.stage))
        if stage is None:
            raise InternalError(f"This version knows no stage {call.stage!r} of {call.kind!r}.")
        job: Batch | Ingestion | None = self._ledger.run(_READ[call.kind](call.job))
        page = job.pages.get(call.number) if job else None
        if job is None or (call.number and (page is None or page.at is not call.stage)):
            return {"gone": True}  # its claim is stale, or will be: nobody waits for it
        return stage(StageContext(self._ledger, storage, self._settings, job, call.number, token, progress, self._pace))

    def _reporting(self, progress: Progress) -> Storage:
        """The storage, of which a stream hears that a large file is sent: that takes longer than work may stand still.

        One for all stages of the stream: what they remember of the storage goes with it.
        """
        return self._storages.setdefault(progress, self._storage.reporting(progress.step))

    def _moved(self, progress: Progress) -> None:
        progress.step()
        if self._stop():
            raise Stopping


def place_of(error: Exception) -> str:
    """Where it was raised. Its message may hold what somebody submitted."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown place"


def _described(piece: Piece, outcome: Outcome) -> SpanAttributes:
    error = next((error.code for error in outcome.errors.values()), "")
    kind = StageCall.from_payload(piece.payload)
    return {"embedq.job.kind": f"{kind.kind} {kind.stage}", **({"error.type": error} if error else {})}


def _failed(piece: Piece, error: EmbedqError) -> Outcome:
    """The outcome of a stage that cannot be done."""
    return Outcome(piece, b"", errors={piece.first: TextError(error.code, error.detail)})

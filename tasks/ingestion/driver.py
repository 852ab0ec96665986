"""The driver: reads open jobs, asks `advance` what is next, and makes the move. One documents worker drives at a time.

Two would be right, because a move applies only after the one that was read; they would only be in each other's way.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import orjson

from tasks.errors import EmbedqError, Forbidden, RedisUnavailable, Unavailable
from tasks.ingestion.advance import USUAL, JobLimits, StageOutcome, advance
from tasks.ingestion.job_runner import away, place_of
from tasks.ingestion.pipeline import make_chunker
from tasks.ingestion.skip_unchanged import noted
from tasks.ledger.client import Ledger
from tasks.ledger.overview import overview
from tasks.ledger.read import read_result
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Task
from tasks.records.batches import BatchRecord, read_batches
from tasks.records.ingestions import SAMPLE_EVERY_MS, Ingestion, IngestionRecord, IngestionStatus, read_ingestions
from tasks.records.jobs import DonePage, Job, JobError, JobStatus, Stage, list_jobs, read_done, read_tasks_of
from tasks.records.moves import Move, no_room
from tasks.records.store import OPEN
from tasks.storage.storage import Storage
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_AT_ONCE = 50
"""Jobs that are read at a time: what the first of them take makes the last ones old."""
_LOOK = 500
"""Done pages that another try looks at with one move."""
_MOVES_A_ROUND = 20
"""Of one job: others wait."""
_LEASE_MS = 3000
_RENEW_S = 1.0
_AWAY_S = 2.0
"""Until the files of a model are looked for again, however many ingestions wait for them."""
_AWAY_TIMES = 4
"""So many times as long as the look took, where that is longer: a silent storage must not stop the driver."""
_ODD_S = 60.0
"""So long a job that nobody can make sense of is left alone: it must not fill the log."""
_Read: TypeAlias = Callable[[Sequence[str]], Operation[Any]]
_READ: tuple[tuple[type[Any], _Read], ...] = (
    (BatchRecord, read_batches),
    (IngestionRecord, read_ingestions),
)


@dataclass
class Driver:
    """Drives all open jobs.

    Attributes:
        send_bell: of a queue for which a script said that one is due. Never raises.
        stop: whether a stop was asked for: leave, the next documents worker goes on.
        moved: called between two calls that may take long.
    """

    ledger: Ledger
    storage: Storage
    settings: Settings
    send_bell: Callable[[str], None] = lambda _: None
    stop: Callable[[], bool] = lambda: False
    moved: Callable[[], None] = lambda: None
    limits: JobLimits = USUAL
    clock: Callable[[], float] = time.monotonic
    _name: str = field(default_factory=lambda: secrets.token_hex(8))
    _renew_at: float = 0.0
    _odd: dict[str, float] = field(default_factory=dict)
    _away: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Revisions of models whose files cannot be read -> what is away, and until when nobody looks again."""

    def __call__(self) -> None:
        """One round over all open jobs, as long as no other worker drives.

        Raises:
            RedisUnavailable: the round ends.
            EmbedqError: that the last job raised which could not be moved.
        """
        self._renew_at = 0.0
        raised: EmbedqError | None = None
        for read, ids in self._open():
            if not self._leads():
                return
            for job in self._readable(read, [job_id for job_id in ids if job_id not in self._odd]):
                if self.stop() or not self._leads():
                    return
                try:
                    self._drive(job, read)
                except RedisUnavailable:
                    raise
                except EmbedqError as error:
                    raised = error
                except Exception as error:  # noqa: BLE001 - of one job: the others go on
                    self._leave_alone(job.id, error)
        self._odd = {job_id: until for job_id, until in self._odd.items() if self.clock() < until}
        if raised is not None:
            raise raised

    def _open(self) -> Iterator[tuple[_Read, Sequence[str]]]:
        for kind, read in _READ:
            after, more = "", True
            while more:
                ids, more = self.ledger.run(list_jobs(kind, OPEN, after=after, limit=_AT_ONCE))
                yield read, ids
                after = ids[-1] if ids else ""

    def _readable(self, read: _Read, ids: Sequence[str]) -> Sequence[Job[Any]]:
        try:
            return self._read(read, ids)
        except EmbedqError:
            raise
        except Exception as error:  # noqa: BLE001 - of one of them, and the others go on
            if len(ids) == 1:
                self._leave_alone(ids[0], error)
                return []
            return [job for job_id in ids for job in self._readable(read, [job_id])]

    def _leave_alone(self, job_id: str, error: Exception) -> None:
        _log.error("%s is left alone for a minute: %s at %s", job_id, type(error).__name__, place_of(error))
        self._odd[job_id] = self.clock() + _ODD_S

    def _read(self, read: _Read, ids: Sequence[str]) -> Sequence[Job[Any]]:
        found: list[Job[Any]] = self.ledger.run(read(ids)) if ids else []
        with_tasks: list[Job[Any]] = self.ledger.run(read_tasks_of(found)) if found else []
        return with_tasks

    def _leads(self) -> bool:
        """Whether this driver is the one. Asked before the first job of a round, and each second of it."""
        if self.clock() < self._renew_at:
            return True
        self._renew_at = self.clock() + _RENEW_S
        return self.ledger.run(_drives(self._name, _LEASE_MS))

    def leave(self) -> None:
        """Another worker may drive at once."""
        self.ledger.run(_drives(self._name, 0))

    def _drive(self, job: Job[Any], read: _Read) -> None:
        """Moves a job on as far as it goes now."""
        for _ in range(_MOVES_A_ROUND):
            self.moved()
            if not self.move_on(job):
                return
            found = self._read(read, [job.id])
            if not found:
                return
            job = found[0]

    def move_on(self, job: Job[Any]) -> bool:
        """One move of a job with its tasks; whether there may be another one."""
        ended = {task_id: self._outcome(task) for task_id, task in job.tasks.items() if task.state.terminal}
        outcomes = {task_id: outcome for task_id, outcome in ended.items() if outcome is not None}
        nothing = ended.keys() - outcomes.keys()
        tasks = {task_id: task for task_id, task in job.tasks.items() if task_id not in nothing}
        job = replace(job, tasks=tasks, done=self._done(job))
        begins = job.record.status is JobStatus.QUEUED and job.record.stop is None
        start = self._start(job) if begins else ""
        move = self._noting(job, advance(job, outcomes, start, self.limits))
        if move is None:
            return False
        try:
            bells = self.ledger.run(move.operation(move.room, wakes=False))
        except Forbidden:  # nothing of the move was made
            move = no_room(job)
            bells = self.ledger.run(move.operation(wakes=False))
        for queue in bells or ():
            self.send_bell(queue)
        return move.has_moved

    def _done(self, job: Job[Any]) -> Mapping[int, DonePage]:
        """Some of the pages that another try is still to look at."""
        record = job.record
        if not record.looks_again:
            return {}
        numbers = range(record.retry, min(record.retry_end, record.retry + _LOOK))
        return self.ledger.run(read_done(job.id, record.KIND, numbers))

    def _outcome(self, task: Task) -> StageOutcome | None:
        """What an ended task has come to; None: nothing, as if it were not there."""
        if task.id.endswith(f"-{Stage.EMBED}"):
            made = {"rows": task.completed + task.failed, "failed": task.failed, "tokens": task.prompt_tokens}
            return StageOutcome(made={**made, "model_changed": task.model_changed})
        result = self.ledger.run(read_result(task.id))
        if result is not None and result.pieces:
            returned = orjson.loads(result.pieces[0].data)
            if "away" in returned:
                return StageOutcome(away=returned["away"], why=returned.get("why", ""))
            return None if "gone" in returned else StageOutcome(made=returned)  # Redis may have gone back since
        error = None if result is None else result.stored_errors.get(0)
        if error is None:  # it was cancelled, by whatever hand
            return None
        lost = error.code == "worker_lost"
        return StageOutcome(lost=True) if lost else StageOutcome(error=JobError(error.code, error.message))

    def _start(self, job: Job[Any]) -> Mapping[str, Any] | JobError | str:
        """What is noted of the model of an ingestion, or what is away of all that is needed for that."""
        if job.record.is_batch:
            return {}
        model = self.ledger.run(overview(job.model))[job.model].model
        if model is None:
            return "model"
        began = self.clock()
        what, until = self._away.get(model.revision, ("", 0))
        if began < until:
            return what
        try:
            fields = noted(job.record, model)
            make_chunker(self.storage, job.record, model)
        except RedisUnavailable:
            raise
        except Unavailable as error:
            now = self.clock()
            self._away[model.revision] = (away(error), now + max(_AWAY_S, _AWAY_TIMES * (now - began)))
            return away(error)
        except EmbedqError as error:
            return JobError(error.code, error.detail, error.param)
        return fields

    def _noting(self, job: Job[Any], move: Move | None) -> Move | None:
        """With a sample of how far an ingestion is, now and then, and the estimate of a dry run at its end."""
        if not isinstance(job, Ingestion):
            return move
        if move is not None and move.record.dry_run and move.record.status is JobStatus.COMPLETED:
            queue = self.ledger.run(overview(job.model))[job.model]
            move.set(estimate_s=move.record.sums.chunk_tokens / queue.speed)
        last = job.record.samples[-1] if job.record.samples else None
        due = last is None or not 0 <= job.now_ms - last.at_ms < SAMPLE_EVERY_MS
        if due and job.status is IngestionStatus.IN_PROGRESS:
            now = job.sample
            move = move or Move(job)
            move.set(samples=(*job.record.samples[-1:], now), base=job.record.base or now)
        return move


def _drives(name: str, for_ms: int) -> Operation[bool]:
    """Whether this driver is the one, for so long; 0: it leaves."""
    return Operation(bool, "driver", "", (name, for_ms))

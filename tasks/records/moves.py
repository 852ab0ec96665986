"""What one script does with a job: the one way in which a job changes. Callers cancel, delete and retry by it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from tasks.ledger.scripts import Argument, Operation
from tasks.ledger.submit import task_arguments
from tasks.ledger.task import NewTask
from tasks.records import store
from tasks.records.files import FileRecord
from tasks.records.ingestions import Ingestion
from tasks.records.jobs import LONGEST_PAUSE_S, DonePage, Job, JobError, JobStatus, Page, R, Stage, Wait
from tasks.records.store import ANY_ROOM, Room

_FIRST_PAUSE_MS = 1000


class Move:
    """What one script does with a job: head and pages as they are to be, tasks to enqueue, to cancel and to forget.

    Attributes:
        counters: added to those of the documents queue, for metrics.
        files: records that are made with it, of an owner who is not purged.
    """

    def __init__(self, job: Job[R]) -> None:
        self.job, self.pages = job, dict(job.pages)
        self.record: Any = job.record
        self.done: dict[int, DonePage] = {}
        self.new_tasks: list[NewTask] = []
        self.forget: list[str] = []
        self.cancel: list[str] = []
        self.files: list[FileRecord] = []
        self.counters: Counter[str] = Counter()
        self.paused = False
        """A wait has begun, or goes on, in this very move."""

    def __bool__(self) -> bool:
        return self.has_moved or bool(self.new_tasks or self.forget or self.cancel)

    @property
    def has_moved(self) -> bool:
        """Whether more may be possible after it: it does not only enqueue once more what Redis has lost."""
        changed = self.record is not self.job.record and self.record != self.job.record
        return bool(changed or self.pages != self.job.pages or self.done)

    def set(self, **fields: Any) -> None:
        """Changes the head."""
        self.record = self.record.model_copy(update=fields)

    def put(self, number: int, **fields: Any) -> Page:
        """Changes a page; as it is then."""
        self.pages[number] = replace(self.pages[number], **fields)
        return self.pages[number]

    def stop(self, to: JobStatus, *errors: JobError) -> None:
        """Nothing new begins; the job ends in this state when nothing runs any more. The first stop counts."""
        if self.record.stop is None:
            self.set(stop=to, errors=errors)
        elif to is JobStatus.DELETED:
            self.set(stop=to)

    def pause(self, what: str, stage: Stage, why: str = "") -> None:
        """Waits for what is away: 1, 2, 4 … 60 s."""
        before, now_ms = self.record.wait, self.job.now_ms
        self.paused = True
        if before is not None and before.begins(now_ms):  # this one began before the pause did
            return
        tries = before.tries + 1 if before else 1
        pause_ms = round(min(LONGEST_PAUSE_S * 1000, _FIRST_PAUSE_MS * 2.0 ** min(tries - 1, 10)))
        since = before.since_ms if before and before.what == what else now_ms
        self.set(wait=Wait(what=what, stage=stage, tries=tries, until_ms=now_ms + pause_ms, since_ms=since, why=why))
        self.counters[f"setbacks_{what}"] += 1

    def close(self, number: int, page: DonePage) -> None:
        """A page is done."""
        was = self.pages.pop(number).was
        new = page.counts.plus(was.counts, -1) if was else page.counts
        self.done[number] = page
        self.set(sums=self.record.sums.plus(new), done_pages=self.record.done_pages + (not was))
        for name in ("loaded", "unchanged", "failed"):
            self.counters[f"ingested_{name}"] += 0 if self.record.is_batch else max(0, getattr(new, name))

    @property
    def room(self) -> Room:
        """What its job keeps more must fit into the account, unless it stops: then its end is noted in any case."""
        grows = self.record.sums.kept > self.job.record.sums.kept
        most = None if self.record.is_batch or self.job.record.stop or not grows else self.record.most_stored
        return ANY_ROOM if most is None else Room({"stored": most})

    def end(self, status: JobStatus) -> None:
        """Nothing is under way any more."""
        if status is not JobStatus.DELETED:
            self.counters[f"{self.record.PLURAL}_{status}"] += 1
        self.set(status=status, wait=None, retry=0, retry_end=0, swept=False)

    def operation(self, room: Room = ANY_ROOM, *, wakes: bool = True) -> Operation[Sequence[str] | None]:
        """Makes it. The queues for which a bell is due; None: the job has moved since it was read, or is gone.

        Args:
            room: of it only the limits of the account.
            wakes: the driver. Its own moves need not.

        Raises on reading:
            Forbidden, TooMany: as `store.create`.
        """
        job, before = self.job, self.job.record
        shown = self.record.shown_status(self.pages)
        if shown != before.shown_status(job.pages):
            self.set(times={**before.times, shown: job.now_ms})
        puts = {f"o{n}": page.to_json() for n, page in self.pages.items() if page is not job.pages.get(n)}
        drops = [f"o{n}" for n in job.pages if n not in self.pages]
        done = {str(n): page.to_json() for n, page in self.done.items()}
        counters = {name: number for name, number in self.counters.items() if number}
        arguments: list[Argument] = [before.KIND, job.id, job.change, store.new_change(), self.record.to_json()]
        arguments += [self._life_ms(), len(puts), len(drops), len(done), len(self.forget), len(self.cancel)]
        arguments += [len(self.files), orjson.dumps(counters), int(wakes), room.to_json()]
        for pairs in (puts, done):
            arguments += [part for pair in pairs.items() for part in pair]
        arguments += [*drops, *self.forget, *self.cancel]
        for file in self.files:
            arguments += store.creation(file.KIND, file.id, file.to_json(), _OF_JOB, for_ms=file.life_ms)
        arguments += [argument for task in self.new_tasks for argument in task_arguments(task)]

        def read(reply: list[bytes]) -> Sequence[str] | None:
            if reply[0] == b"full":
                store.created(before.KIND, room, reply)
            return None if reply[0] == b"changed" else tuple(name.decode() for name in reply[1:])

        return Operation(read, "job_change", "", tuple(arguments), promised=True)

    def _life_ms(self) -> int:
        before, status = self.job.record.status, self.record.status
        if status is before:
            return store.AS_BEFORE
        ends = status.terminal and status is not JobStatus.DELETED
        return int(self.record.ttl_ms) if ends else store.FOR_EVER


_OF_JOB = Room(part=True)
_NO_ROOM = JobError(
    "quota_exceeded",
    "What becomes of documents is stored too, and your files, datasets and ingestions leave no room. Delete "
    "files or ended ingestions, wait two minutes, then try this one again. What is loaded stays.",
)


def cancel_job(job: Job[R]) -> Move | None:
    """Lets nothing new begin; what is loaded stays, and what is being loaded. None: it has ended, or stops already."""
    if job.record.status.terminal or job.record.stop is not None:
        return None
    move = Move(job)
    move.stop(JobStatus.CANCELLED)
    return move


def no_room(job: Job[R]) -> Move:
    """Stops one whose next move keeps more than its owner's account has room for. What is loaded stays."""
    move = Move(job)
    move.stop(JobStatus.FAILED, _NO_ROOM)
    return move


def delete_job(job: Job[R]) -> Move | None:
    """A mark; of one that is open it is a stop. Nobody sees it from then on, and the sweep removes what is left.

    None: it is deleted already.
    """
    if job.deleted:
        return None
    move = Move(job)
    if job.record.status.terminal:
        move.end(JobStatus.DELETED)
    else:
        move.stop(JobStatus.DELETED)
    return move


def retry_job(job: Ingestion) -> Move | None:
    """Goes on with one that has ended: open pages where they are, and done pages with failed documents once more.

    None: there is nothing to go on with, or the same would come of it.
    """
    record = job.record
    if record.status not in {JobStatus.COMPLETED, JobStatus.FAILED} or (record.errors and not job.resumable):
        return None
    if not (record.sums.failed or job.pages or record.errors or not record.listed):
        return None
    move = Move(job)
    move.set(
        status=JobStatus.IN_PROGRESS,
        stop=None,
        errors=(),
        retry=1,
        retry_end=record.next_page,
        finished=False,
        losses=0,
        swept=False,
        **dict.fromkeys(("base", "estimate_s")),
        samples=(),
    )
    return move

"""Jobs: batches and ingestions. One record, one kind of page, one move for both.

A record has a head, pages that are open, and pages that are done. It changes by moves alone: one script, all of it or
nothing, and only after the change that was read (`lua/job_change.lua`). Changes have random names: a number would come
again when Redis goes back. Who moves a job on is `tasks.ingestion.advance`; callers cancel, delete and retry.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field

from tasks.ledger.read import fields_of, task_of
from tasks.ledger.redis_keys import JOB_ENDS, record_alias_key, record_key, task_key
from tasks.ledger.scripts import Command, Operation
from tasks.ledger.task import Task
from tasks.records import store
from tasks.records.store import OPEN, AnyRecord, Room, Standing
from worker_config.telemetry import traceparent

ENDED = "@ended"
"""The list of jobs that have ended, and that the sweep has not done with."""


def deleted_of(owner: str) -> str:
    """The list of an owner's jobs that are deleted and not swept yet. Those of a purged owner wait for no minute."""
    return f"@deleted:{owner}"


LONGEST_PAUSE_S = 60.0


class JobStatus(StrEnum):
    """States of a job of either kind. What clients see follows from it and from its pages."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    DELETED = "deleted"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state has ended."""
        return self not in {JobStatus.QUEUED, JobStatus.IN_PROGRESS, JobStatus.FINALIZING}


class Stage(StrEnum):
    """What is done with a job, and with each of its pages: a task each. A batch is one page."""

    LIST = "list"
    PARSE = "parse"
    EMBED = "embed"
    LOAD = "load"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed: one of possibly many reasons. `line` of a batch's file counts from 1."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class Counts(NamedTuple):
    """What became of the documents of a page, or of the lines of a batch.

    Attributes:
        documents: all of them.
        replaced, emptied: of those loaded: in whose place an earlier ingestion had brought another content; without
            text now.
        warned: of those loaded or unchanged: not all of them could be read.
        chunks: cut, and with a vector or without one. Of a batch: its texts.
        loaded_chunks: of the documents that were loaded.
        tokens, chunk_tokens: that the model has read; that were counted before.
        bytes: of the source.
        kept: bytes of their lines in the storage, in the owner's account until the sweep removes the record.
    """

    documents: int = 0
    loaded: int = 0
    unchanged: int = 0
    failed: int = 0
    replaced: int = 0
    emptied: int = 0
    warned: int = 0
    chunks: int = 0
    loaded_chunks: int = 0
    tokens: int = 0
    chunk_tokens: int = 0
    bytes: int = 0
    kept: int = 0

    def plus(self, other: "Counts", sign: int = 1) -> "Counts":
        """The sum; with the sign -1 the difference."""
        return Counts(*(mine + sign * its for mine, its in zip(self, other, strict=True)))


class DonePage(NamedTuple):
    """A page that is done. `obj`: stored name of its lines."""

    obj: str
    counts: Counts

    def to_json(self) -> bytes:
        """As it is stored."""
        return orjson.dumps([self.obj, *self.counts])

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Inverse of `to_json`."""
        obj, *counts = orjson.loads(text)
        return cls(obj, Counts(*counts))


@dataclass(frozen=True, slots=True)
class Page:
    """Documents that move together.

    Attributes:
        at: the stage that is next or, where `under_way`, has a task.
        src: stored name of its lines as LIST wrote them; `documents` and `size_bytes` of these. Of a batch the copy of
            its file, once there is one that must be cut again.
        obj: of its lines as PARSE wrote them; "" before it.
        rows: of its chunks, a line each; "" where there are none.
        chunks, chunk_tokens: as of `Counts`; known once it is parsed.
        tokens: that the model has read; `failed_texts`: of which there is no vector. Known once it is embedded.
        losses: how often in a row workers have died of its stage until the ledger gave it up.
        fault: why all of its documents fail.
        was: what it was before a retry opened it again. That counts until the page is done.
        place: number of the page that it was divided from; 0: of none. Pages are loaded in the order of places.
    """

    at: Stage = Stage.PARSE
    under_way: bool = False
    src: str = ""
    documents: int = 0
    size_bytes: int = 0
    obj: str = ""
    rows: str = ""
    chunks: int = 0
    chunk_tokens: int = 0
    tokens: int = 0
    failed_texts: int = 0
    losses: int = 0
    fault: JobError | None = None
    was: DonePage | None = None
    place: int = 0

    def to_json(self) -> bytes:
        """As it is stored; what has its default is left out."""
        fields = {name: value for name in _PAGE_FIELDS if (value := getattr(self, name)) and value != _NEW[name]}
        if self.was is not None:
            fields["was"] = [self.was.obj, [*self.was.counts]]
        return orjson.dumps(fields)

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Inverse of `to_json`."""
        fields = orjson.loads(text)
        if "at" in fields:
            fields["at"] = Stage(fields["at"])
        if "fault" in fields:
            fields["fault"] = JobError(**fields["fault"])
        if "was" in fields:
            fields["was"] = DonePage(fields["was"][0], Counts(*fields["was"][1]))
        return cls(**fields)

    def as_listed(self) -> "Page":
        """Back to what LIST wrote: the one object that the sweep never takes from a job that may go on."""
        src = self.src or self.rows  # nobody has listed a batch, and its file may be gone: there is a copy
        return Page(place=self.place, src=src, documents=self.documents, size_bytes=self.size_bytes, was=self.was)


_NEW = {name: getattr(Page(), name) for name in Page.__slots__}
_PAGE_FIELDS = tuple(_NEW)


class Wait(BaseModel):
    """What a job waits for. Nothing of it begins before `until_ms`; the pause doubles with each try.

    Attributes:
        what: `model`, `sink`, `storage`, `disk_full`, `worker` (one died).
        stage: that found it away; a success of the same stage ends the wait.
        why: a sentence for people, of a sink; "": none.
    """

    model_config = ConfigDict(frozen=True)

    what: str
    stage: str
    tries: int
    until_ms: int
    since_ms: int
    why: str = ""

    def begins(self, now_ms: int) -> bool:
        """Whether it is too early. A wait beyond the longest pause is none: the clock of Redis has gone back."""
        return now_ms < self.until_ms <= now_ms + LONGEST_PAUSE_S * 1000


class JobRecord(AnyRecord):
    """The head of a job.

    Attributes:
        owner: id of the owner.
        ttl_ms: how long the record is kept after its end.
        alias: of its idempotency key; "": it has none.
        request: what was asked for, JSON.
        model: served name; "" of a batch whose lines were not read yet.
        stop: the state that it ends in once nothing runs any more; None: it goes on.
        errors: why it failed.
        times: state as clients see it -> when it was reached last, Unix milliseconds by the clock of Redis.
        cursor: where the next LIST begins; None: at the beginning.
        listed: there is nothing more to list.
        next_page: number of the next page, from 1.
        head_task: LIST or FINISH is under way; `losses` of these.
        retry, retry_end: pages from this number to below that one are still to be looked at: those that are done, and
            have failed documents, are opened again.
        sums, done_pages: of the pages that are done.
        finished: FINISH has deleted what is not in the source.
        swept: the sweep has done with it.
        trace: `traceparent` of the request that made it; "" where that is not traced.
    """

    PLURAL: ClassVar[str]

    id: str
    owner: str
    ttl_ms: int
    alias: str = ""
    request: dict[str, Any] = Field(repr=False)
    model: str = ""
    status: JobStatus = JobStatus.QUEUED
    stop: JobStatus | None = None
    errors: tuple[JobError, ...] = ()
    times: Mapping[str, int] = Field(default_factory=dict)
    cursor: dict[str, Any] | None = None
    listed: bool = False
    next_page: int = 1
    head_task: bool = False
    losses: int = 0
    wait: Wait | None = None
    retry: int = 0
    retry_end: int = 0
    sums: Counts = Counts()
    done_pages: int = 0
    finished: bool = False
    swept: bool = False
    trace: str = ""

    @property
    def record_id(self) -> str:
        """Its id."""
        return self.id

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch: one page, its rows are assembled."""
        return self.KIND == "batch"

    @property
    def dry_run(self) -> bool:
        """Whether it only counts."""
        return bool(self.request.get("dry_run"))

    @property
    def looks_again(self) -> bool:
        """Whether another try has not looked at all done pages yet."""
        return self.retry < self.retry_end

    def shown_status(self, pages: Mapping[int, Page]) -> str:
        """The state as clients see it."""
        raise NotImplementedError

    def standing(self) -> Standing:
        """An open job counts for its owner, and what it keeps; a deleted one is seen by the sweep alone."""
        counts = {"stored": self.sums.kept}
        if not self.status.terminal:
            counts |= {"jobs": 1, self.PLURAL: 1}
            return Standing(self.owner, counts, (self.owner, OPEN), alias=self._alias)
        if self.status is JobStatus.DELETED:
            return Standing(self.owner, counts, (ENDED, deleted_of(self.owner)))
        return Standing(self.owner, counts, (self.owner,) if self.swept else (self.owner, ENDED), alias=self._alias)

    @property
    def _alias(self) -> str:
        return f"{self.owner}:{self.alias}" if self.alias else ""

    @property
    def folder(self) -> str:
        """Everything of its own in the storage lies below, with a slash at the end."""
        return f"{self.owner}/{self.id}/"

    def task_id(self, number: int, stage: Stage) -> str:
        """The ledger's task of a page; of LIST and FINISH with the number 0. It has no page of this number."""
        return f"{self.id}-{number}-{stage}"

    @property
    def head_stage(self) -> Stage:
        """Of the task that is no page's."""
        return Stage.FINISH if self.status is JobStatus.FINALIZING else Stage.LIST


R = TypeVar("R", bound=JobRecord)
J = TypeVar("J", bound="Job[Any]")


@dataclass(frozen=True)
class Job(Generic[R]):
    """A job as it was read.

    Attributes:
        change: random name of its last move.
        created_ms, now_ms: by the clock of Redis, in Unix milliseconds.
        order: of two jobs the one that was accepted later has the higher number, whatever clocks say.
        pages: those that are open, by number, in order.
        done: of those that are done the ones that were asked for.
        tasks: those of its tasks that are there, where somebody has looked (`with_tasks`).
    """

    record: R = field(repr=False)
    change: str
    created_ms: int
    now_ms: int
    order: int = 0
    pages: Mapping[int, Page] = field(default_factory=dict)
    done: Mapping[int, DonePage] = field(default_factory=dict)
    tasks: Mapping[str, Task] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its id."""
        return self.record.id

    @property
    def owner(self) -> str:
        """Id of its owner."""
        return self.record.owner

    @property
    def model(self) -> str:
        """Served name; "" while that is unknown."""
        return self.record.model

    @property
    def deleted(self) -> bool:
        """Its owner has deleted it, or is purged, and sees it no more. The sweep removes what is left of it."""
        return JobStatus.DELETED in {self.record.status, self.record.stop}

    @property
    def times(self) -> Mapping[str, int]:
        """See `JobRecord`."""
        return self.record.times

    @property
    def expires_ms(self) -> int | None:
        """When its record goes; None while it is open."""
        record = self.record
        ended = self.times.get(record.shown_status(self.pages), 0) if record.status.terminal else 0
        return ended + record.ttl_ms if ended else None

    def task_ids(self) -> Iterator[str]:
        """Of the tasks that must be there."""
        record = self.record
        if record.head_task:
            yield record.task_id(0, record.head_stage)
        yield from (record.task_id(number, page.at) for number, page in self.pages.items() if page.under_way)

    def with_tasks(self, tasks: Sequence[Task | None]) -> Self:
        """With those of these tasks that are its own."""
        names = set(self.task_ids())
        return replace(self, tasks={task.id: task for task in tasks if task is not None and task.id in names})

    def embedded_of(self, number: int, page: Page) -> int:
        """Chunks of an open page that have been through the model."""
        if page.at is Stage.EMBED:
            task = self.tasks.get(self.record.task_id(number, page.at))
            return min(page.chunks, task.completed + task.failed) if task else 0
        return page.chunks

    def counts_so_far(self) -> Counts:
        """Of pages that are done, and of what is known of those that are open."""
        total = self.record.sums
        for page in self.pages.values():
            if page.was is None:
                total = total.plus(
                    Counts(
                        documents=page.documents,
                        chunks=page.chunks,
                        tokens=page.tokens,
                        chunk_tokens=page.chunk_tokens,
                        bytes=page.size_bytes,
                    )
                )
        return total


def create_job(record: R, room: Room, digest: str = "") -> Operation[str]:
    """Stores a job, or finds the one that its alias names; the id of either. Raises on reading as `store.create`.

    If the request that is worked on is traced, the tasks of the job will be, below that request.
    """
    trace = traceparent()
    return store.create(record.model_copy(update={"trace": trace}) if trace else record, room, digest=digest)


def find_job(kind: type[R], owner: str, key: tuple[str, str]) -> Operation[str | None]:
    """The id of the job that an idempotency key (name, digest) leads to; None: it is a new one.

    Raises on reading:
        Refused: the key belongs to a record of another request.
    """
    name, digest = key

    def read(replies: list[bytes | None]) -> str | None:
        record_id, _, of = (replies[0] or b"").decode().partition(" ")
        if record_id and of != digest:
            raise store.conflict(kind.KIND)
        return record_id or None

    return Operation(read, commands=(("GET", record_alias_key(kind.KIND, f"{owner}:{name}")),))


def list_jobs(
    kind: type[JobRecord], of: str, *, after: str | None = None, limit: int
) -> Operation[tuple[list[str], bool]]:
    """Ids of the jobs in a list, such as an owner's, the newest first and older than `after`; are there more."""
    return store.listed_ids(kind.KIND, of, after=after or "", limit=limit)


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_job(kind: type[JobRecord], make: Callable[..., J], job_id: str) -> Operation[J | None]:
    """One job, without its tasks; None where there is none. `make`: `Job`, or what is made of it for clients."""
    return store.mapped(read_jobs(kind, make, [job_id]), lambda found: found[0] if found else None)


def read_jobs(kind: type[JobRecord], make: Callable[..., J], job_ids: Sequence[str]) -> Operation[list[J]]:
    """Several jobs in the order asked for; those that are gone, or of another version, are left out."""

    def read(replies: list[Any]) -> list[J]:
        now, *hashes = replies
        made = (_job(kind, make, fields_of(flat), int(now)) for flat in hashes)
        return [job for job in made if job is not None]

    return Operation(read, "job_read", "", (kind.KIND, *job_ids))


def clock() -> Operation[int]:
    """Unix milliseconds by the clock of Redis, as `Job.now_ms`."""
    return Operation(lambda reply: int(reply[0]), "job_read", "", ("",))


def _job(kind: type[JobRecord], make: Callable[..., J], fields: Mapping[bytes, bytes], now_ms: int) -> J | None:
    record = store.record_of(kind, fields[b"s"]) if b"s" in fields else None
    if record is None:
        return None
    pages = {
        int(name[1:]): Page.from_json(text) for name, text in fields.items() if name[:1] == b"o" and name[1:].isdigit()
    }
    return make(
        record=record,
        change=fields[b"change"].decode(),
        created_ms=int(fields[b"created"]),
        order=int(fields[b"order"]),
        now_ms=now_ms,
        pages=dict(sorted(pages.items())),
    )


def read_done(job_id: str, kind: str, numbers: Sequence[int]) -> Operation[Mapping[int, DonePage]]:
    """Those of the pages with these numbers that are done."""
    asked = list(numbers)

    def read(replies: list[list[bytes | None]]) -> Mapping[int, DonePage]:
        found = zip(asked, replies[0], strict=True) if asked else ()
        return {number: DonePage.from_json(text) for number, text in found if text}

    command: Command = ("HMGET", record_key(f"{kind}-done", job_id), *asked) if asked else ("TIME",)
    return Operation(read, commands=(command,))


def all_done(job_id: str, kind: str) -> Operation[Mapping[int, DonePage]]:
    """All of its pages that are done."""

    def read(replies: list[Any]) -> Mapping[int, DonePage]:
        return {int(number): DonePage.from_json(text) for number, text in replies[0].items()}

    return Operation(read, commands=(("HGETALL", record_key(f"{kind}-done", job_id)),))


def due_jobs(now_ms: int, limit: int) -> Operation[list[tuple[str, str]]]:
    """Kind and id of jobs whose records have lived long enough."""

    def read(replies: list[list[bytes]]) -> list[tuple[str, str]]:
        pairs = (entry.decode().split(":", 1) for entry in replies[0])
        return [(kind, job_id) for kind, job_id in pairs]

    return Operation(read, commands=(("ZRANGEBYSCORE", JOB_ENDS, "-inf", now_ms, "LIMIT", 0, limit),))


def ended_jobs(kind: type[JobRecord], after: str = "") -> Operation[list[tuple[str, str]]]:
    """Id and last move of some jobs that the sweep has not done with, behind this id, the oldest first.

    Promised: where a replica does not know of the ends yet, nothing is deleted because of them.
    """
    return replace(store.listed_changes(kind.KIND, ENDED, after=after), promised=True)


def read_tasks_of(jobs: Sequence[J]) -> Operation[list[J]]:
    """The same jobs with their tasks."""
    ids = [task_id for job in jobs for task_id in job.task_ids()]

    def read(replies: list[Any]) -> list[J]:
        found = [task_of(task_id, packed) for task_id, packed in zip(ids, replies, strict=False)]
        return [job.with_tasks(found) for job in jobs]

    return Operation(read, commands=tuple(("HGET", task_key(task_id), "s") for task_id in ids) or (("TIME",),))

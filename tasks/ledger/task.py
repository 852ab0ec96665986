"""The values that go into and come out of the ledger. All frozen. Times are milliseconds of the server's clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tasks.item import DEFAULT_RATE, Options, TextError
from worker_config.traces import ClaimTrace


class State(StrEnum):
    """States of a task, in OpenAI's words."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """Whether a task in this state has ended."""
        return self not in {State.QUEUED, State.IN_PROGRESS}


class Lane(StrEnum):
    """Who waits: `online` somebody does, `bulk` nobody in particular."""

    ONLINE = "online"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class NewUnit:
    """A slice of a task as it is submitted.

    Attributes:
        items: number of texts in it.
        cost: estimated tokens.
        payload: JSON array of the texts, UTF-8, or JSON object of a `row_file.UnitReference`; the first byte tells. For
            the documents queue the JSON object of a job.
    """

    items: int
    cost: int
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Alias:
    """A second name for a task, scoped to its owner, so that a repetition finds it.

    Attributes:
        name: 32 hexadecimal digits, from `Idempotency-Key` or from the digest of a synchronous request.
        digest: 32 hexadecimal digits of the whole request.
        join: True: a repetition joins a task that is open or completed, prolongs it, and replaces one that ended
            otherwise. False (idempotency): a repetition gets the same task whatever its state, and another digest is
            refused.
    """

    name: str
    digest: str
    join: bool


@dataclass(frozen=True, slots=True)
class KeyAdmission:
    """Limits of one key that SUBMIT checks. None: it has none.

    Attributes:
        tokens_per_minute: estimated tokens that come back to its bucket within a minute; the bucket holds as many.
        queued_tokens: estimated tokens of one lane that have not been encoded.
        open_jobs: listed tasks, batches and ingestions that have not ended.
    """

    tokens_per_minute: int | None = None
    queued_tokens: int | None = None
    open_jobs: int | None = None


NO_KEY_LIMITS = KeyAdmission()


@dataclass(frozen=True, slots=True)
class KeyRoom:
    """What a key may still bring in one task, by the limit that leaves least.

    Attributes:
        limit: the number of this limit, in estimated tokens.
        left: estimated tokens.
        reset_s: seconds until all of it is left, if nothing comes.
    """

    limit: int
    left: int
    reset_s: float


MAX_BACKLOG_BYTES = 512 * 2**20
"""Of texts that callers may have waiting for one model."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits that SUBMIT checks in the same step in which it stores.

    Attributes:
        max_backlog_s: seconds of work, at the workers' measured rate, that may be served before the task has ended: its
            own work, and of that of others in the lane what fair turns let go first.
        default_rate: estimated tokens per second to assume while no worker has ever reported one.
        max_backlog_bytes: payload bytes that may wait in the queue.
        max_memory_percent: share of Redis's `maxmemory` above which nothing new is taken, what open tasks will need
            for their vectors included.
        vector_bytes: room to reserve for the vector of one item; 0 reserves nothing.
        owner_share: one owner may fill as many times the memory, and the payload bytes, that it leaves free; 0: all.
        key: limits of the owner's key.
    """

    max_backlog_s: float
    default_rate: float = DEFAULT_RATE
    max_backlog_bytes: int = 2**63
    max_memory_percent: float = 100
    vector_bytes: int = 0
    owner_share: float = 0
    key: KeyAdmission = NO_KEY_LIMITS


@dataclass(frozen=True, slots=True)
class NewTask:
    """One task to be stored.

    Attributes:
        queue: the served name of its model, or `DOCUMENTS`.
        metadata: JSON object, or empty.
        listed: it appears in its owner's list.
        wakes_steps: its end wakes the steppers of documents workers: a batch or an ingestion waits for it.
        trace: `traceparent` of the span that submits it; empty when it is not traced.
        answer_to: the process on whose channel (`keys.answers_channel`) a small result comes with the news of the end,
            which the others are not told then; "": none.
    """

    task_id: str
    queue: str
    lane: Lane
    owner: str
    units: Sequence[NewUnit]
    options: Options
    ttl_ms: int
    admission: Admission
    deadline_in_ms: int | None = None
    """From now; for a synchronous task the latest moment at which anybody can still want it."""
    metadata: bytes = field(default=b"", repr=False)
    alias: Alias | None = None
    listed: bool = False
    wakes_steps: bool = False
    trace: str = ""
    answer_to: str = ""


@dataclass(frozen=True, slots=True)
class SubmitReply:
    """What SUBMIT did.

    Attributes:
        task_id: the stored task, or the earlier one that this call joined.
        joined: an earlier task was found under the alias.
        bell_due: the caller must send one bell message to the task's queue.
        room: what the owner's key may still bring; None: it has no limit.
    """

    task_id: str
    joined: bool
    bell_due: bool
    room: KeyRoom | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """State of a task.

    Attributes:
        queue: the served name of its model, or `DOCUMENTS`.
    """

    id: str
    queue: str
    lane: Lane
    owner: str
    state: State
    total: int
    completed: int
    failed: int
    prompt_tokens: int
    created_ms: int
    started_ms: int | None
    finished_ms: int | None
    deadline_ms: int | None
    expires_ms: int | None
    options: Options
    metadata: Mapping[str, str] | None = field(repr=False)
    model_changed: bool = False
    """It was ended when workers came to serve another model than the one that had made its first vectors."""
    cost: int = 0
    """Estimated tokens that are still to be encoded."""
    trace: str = ""
    """As in `NewTask`."""


@dataclass(frozen=True, slots=True)
class Result:
    """Vectors of a task, in input order.

    Attributes:
        task: its state at the moment of reading.
        vectors: float32 [total, dimension]; a row of NaN where there is no vector. Dimension 0 when no item has one.
        errors: index -> error, for every item without a vector of an ended task.
        truncated: indexes of the texts that were cut at the model's maximum.
    """

    task: Task
    vectors: npt.NDArray[np.float32]
    errors: Mapping[int, TextError]
    truncated: frozenset[int]


@dataclass(frozen=True, slots=True)
class CommittedUnit:
    """One committed unit: items `first` to `first + items` of the task, and the bytes that a worker committed."""

    first: int
    items: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything committed so far of a task whose outcomes are no vectors: references to parts, results of jobs.

    Attributes:
        task: its state at the moment of reading.
        units: in the order of their items; an item that is in none has an error or was never worked on.
        errors: index -> error, of items that failed outside of a part (`worker_lost`, a job's own error).
    """

    task: Task
    units: Sequence[CommittedUnit]
    errors: Mapping[int, TextError]

    def returned(self) -> dict[str, Any] | None:
        """What the job of this task returned; None when it has not ended, or failed."""
        if not self.units:
            return None
        outcome: dict[str, Any] = orjson.loads(self.units[0].data)
        return outcome


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Some of an owner's tasks.

    Attributes:
        tasks: newest first; at most as many as were asked for, maybe none.
        until: the place up to which it was looked; '' when there was nothing to look at.
        more: there may be more behind that place.
    """

    tasks: Sequence[Task]
    until: str
    more: bool


@dataclass(frozen=True, slots=True)
class ClaimedUnit:
    """A unit under a lease.

    Attributes:
        task_id, unit_id: its place.
        first: index in the task of its first item.
        items: number of items.
        cost: estimated tokens.
        attempts: how often it was claimed, this time included. Above 1 it is a suspect and alone in its claim.
        offset: position of its first item inside the payload (not 0 for an item that was split off).
        options: the task's.
        payload: as in `NewUnit`; that of the whole unit, also for an item that was split off.
        trace, owner: as in `NewTask`.
    """

    task_id: str
    unit_id: str
    first: int
    items: int
    cost: int
    attempts: int
    offset: int
    options: Options
    payload: bytes = field(repr=False)
    trace: str = ""
    owner: str = ""

    def texts(self) -> list[str]:
        """The texts of this unit, in order; its payload is an array."""
        texts: list[str] = orjson.loads(self.payload)
        return texts[self.offset : self.offset + self.items]


@dataclass(frozen=True, slots=True)
class Claim:
    """What CLAIM took, all from one lane, under one token.

    Attributes:
        token: the fence; every later operation on these units presents it.
        units: empty when there was nothing to take.
        lane: of the units; None when there are none.
        more: ready work was left behind.
        suspects: texts whose worker died wait; a caller that is alone can ask for one.
        wait_ms: the caller is registered as lingering and must wait this long for its wake-up; 0: it is not.
        bell_due: the caller must send one bell message.
        suspect: it was asked for a suspect, and what it holds is one.
        trace: its spans; None unless one of its tasks is traced.
    """

    token: str
    units: Sequence[ClaimedUnit]
    lane: Lane | None
    more: bool
    suspects: bool
    wait_ms: int
    bell_due: bool
    suspect: bool = False
    trace: ClaimTrace | None = None

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Of its units, each once."""
        return tuple(dict.fromkeys(unit.task_id for unit in self.units))


class CancelOutcome(StrEnum):
    """What CANCEL did."""

    CANCELLED = "cancelled"
    WAS_CANCELLED = "was_cancelled"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Watched:
    """What WATCH saw: `bell_due` as elsewhere, owners with ready work, leases, tasks it ended at their deadline.

    `more`: it looked at as many as one call may, and more may be overdue.
    """

    bell_due: bool
    ready: int
    leases: int
    expired: int
    more: bool

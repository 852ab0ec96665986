"""Ledger operations as values: which script, with which arguments, and how to read its reply.

Each function here builds one; `Ledger.run` or `AsyncLedger.run` executes it in one round trip. All are idempotent:
running one again after a lost reply changes nothing more and gives the same answer, or one that says "already done".
Reading a reply may raise the errors named in each docstring; Redis's own failures become `RedisUnavailable` and
`StorageFull` in the executor.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

import orjson

from tasks.errors import (
    BacklogFull,
    ModelChanged,
    Refused,
    RequestError,
    SchemaMismatch,
    StorageFull,
    TooMany,
)
from tasks.item import FLOAT32_BYTES, ItemError
from tasks.ledger import replies
from tasks.ledger.answers import pieces_of
from tasks.ledger.keys import SCHEMA_VERSION
from tasks.ledger.overview import ModelEntry, ModelOverview, RedisUse, WorkerEntry
from tasks.ledger.task import (
    CancelOutcome,
    Claim,
    ClaimedUnit,
    Committed,
    KeyAdmission,
    KeyRoom,
    Lane,
    NewTask,
    Result,
    State,
    SubmitReply,
    Task,
    TaskPage,
    Watched,
)

# What a worker commits of a unit, and what the ledger says to it.


class OutcomeKind(StrEnum):
    """What the bytes of an outcome are."""

    VECTORS = "vectors"
    """Little-endian float32 rows of all items of the unit; NaN rows for failed ones; empty when none has one."""
    PART = "part"
    """JSON object: the `vector_part.PartReference` of a unit by reference."""
    JOB = "job"
    """What a job returned: JSON object, or nothing if it failed."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One unit's outcome, to be committed.

    Raises:
        ValueError: the bytes are not of their kind. Redis holds the bytes alone. A reader assumes one kind for all
            units of a task, so one wrong unit makes the whole result unreadable.

    Attributes:
        kind: what `outcome` is.
        errors: index in the task -> error.
        truncated: indexes in the task.
        tokens: sum over its items, after truncation, special tokens included.
        failed_in_part: items that failed and whose errors are in the part, not in `errors`.
    """

    unit: ClaimedUnit
    kind: OutcomeKind
    outcome: bytes
    tokens: int = 0
    errors: Mapping[int, ItemError] = field(default_factory=dict)
    truncated: Sequence[int] = ()
    failed_in_part: int = 0

    def __post_init__(self) -> None:
        """Checks the bytes."""
        if self.kind is OutcomeKind.VECTORS:
            fits = len(self.outcome) % (FLOAT32_BYTES * self.unit.items) == 0 and not self.failed_in_part
        else:
            fits = self.outcome.startswith(b"{") or (self.kind is OutcomeKind.JOB and bool(self.errors))
        if not fits:
            raise ValueError(f"unit {self.unit.unit_id} of {self.unit.task_id}: {self.kind} cannot be these bytes")

    @property
    def failed(self) -> int:
        """How many of its items have failed."""
        return len(self.errors) + self.failed_in_part

    def extra(self) -> bytes:
        """Errors and truncations as stored beside the vectors; empty when there are none."""
        if not self.errors and not self.truncated:
            return b""
        return orjson.dumps(
            {"errors": [[i, e.code, e.message] for i, e in self.errors.items()], "truncated": list(self.truncated)}
        )


class CommitOutcome(IntEnum):
    """What COMMIT did with one unit."""

    STALE = 0
    """The lease was lost or the task has ended: nothing changed."""
    COMMITTED = 1
    REPEATED = 2
    """An earlier call of the same claim had already committed it, with the same outcome."""


T = TypeVar("T")
Argument = str | bytes | int | float

MAX_RETRY_AFTER_S = 120
"""Above this openai-python gives up at once instead of waiting."""
LOOK = 250
"""Entries that one call looks at, at most: many may be of tasks in other states, or gone; Redis is not held long."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """One call of one script.

    Attributes:
        script: name of a file in `lua/`.
        queue: the served name of a model, or `DOCUMENTS`; "" for a script that concerns no queue.
        arguments: by position.
        read: from the script's reply to the value; it may raise.
        named: those by name, of a script that takes more than six.
        promised: somebody relies on it after the reply, so a replica must have it where `EMBEDQ_REDIS_ACK` says so.
        merges: one call of the script may stand for several of these, of one queue. For each it takes the number of its
            arguments before them, and its reply is a list with one for each.
    """

    script: str
    queue: str
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    named: Mapping[str, Argument] = field(default_factory=dict)
    promised: bool = False
    merges: bool = False


# ---- clients ---------------------------------------------------------------------------------------------------------


def submit(submission: NewTask) -> Operation[SubmitReply]:
    """Stores a task, or finds the one that its alias names.

    Raises:
        ValueError: there are no units.

    Raises on reading:
        BacklogFull: as much work as may wait would be done before this; with the seconds after which there is room.
        StorageFull: Redis is above the allowed share of its memory, or the owner above its own; likewise.
        TooMany: a limit of the owner's key; likewise, or not to be repeated because it never fits.
        Refused: the alias belongs to a task with another digest.
    """
    s, admission, alias = submission, submission.admission, submission.alias
    named: dict[str, Argument] = {
        "id": s.task_id,
        "lane": s.lane,
        "owner": s.owner,
        "deadline_in": s.deadline_in_ms or 0,
        "ttl": s.ttl_ms,
        "options": s.options.to_text(),
        "meta": s.metadata,
        "alias": alias.name if alias else "",
        "digest": alias.digest if alias else "",
        "join": int(bool(alias and alias.join)),
        "max_backlog_s": admission.max_backlog_s,
        "default_rate": admission.default_rate,
        "max_bytes": admission.max_backlog_bytes,
        "max_memory": admission.max_memory_percent,
        "vector_bytes": admission.vector_bytes,
        "listed": int(s.listed),
        "share": admission.owner_share,
        "wakes": int(s.wakes_steps),
        "trace": s.trace,
        "answer_to": s.answer_to,
        **_key_arguments(admission.key),
    }
    # A caller that waits on its connection is promised nothing: the answer is all it wants.
    return Operation("submit", s.queue, tuple(_unit_arguments(s)), _submitted, named, promised=s.listed, merges=True)


def _key_arguments(key: KeyAdmission) -> dict[str, Argument]:
    """Limits of a key as SUBMIT takes them: "" is none."""
    return {
        "tokens_per_minute": "" if key.tokens_per_minute is None else key.tokens_per_minute,
        "queued_tokens": "" if key.queued_tokens is None else key.queued_tokens,
        "open_jobs": "" if key.open_jobs is None else key.open_jobs,
    }


def _unit_arguments(submission: NewTask) -> list[Argument]:
    if not submission.units:
        raise ValueError(f"{submission.task_id} has no units: it would never end")
    return [argument for unit in submission.units for argument in (unit.items, unit.cost, unit.payload)]


def successors(tasks: Sequence[NewTask]) -> list[Argument]:
    """Arguments of a script that enqueues `tasks` with a change that it makes.

    They are stored whatever waits already: they belong to work that was let in before. Of their `admission` only
    `vector_bytes` counts.

    Raises:
        ValueError: one has an alias, a deadline or metadata, or is listed.
    """
    arguments: list[Argument] = []
    for task in tasks:
        if task.alias or task.deadline_in_ms or task.metadata or task.listed:
            raise ValueError(f"{task.task_id} is a client's task: it is let in by SUBMIT")
        head = {
            "id": task.task_id,
            "queue": task.queue,
            "lane": task.lane,
            "owner": task.owner,
            "ttl": task.ttl_ms,
            "options": task.options.to_text(),
            "vector_bytes": task.admission.vector_bytes,
            "wakes": task.wakes_steps,
            "trace": task.trace,
        }
        arguments += [orjson.dumps(head), len(task.units), *_unit_arguments(task)]
    return arguments


def read_task(task_id: str) -> Operation[Task | None]:
    """The state of one task; None when the ledger does not hold it."""
    return Operation("read", "", (0, task_id), lambda reply: replies.task_from_reply(task_id, reply[0]))


def read_tasks(task_ids: Sequence[str]) -> Operation[list[Task | None]]:
    """The states of several tasks, in the order asked for (metadata left out)."""
    ids = tuple(task_ids)

    def read(reply: list[Any]) -> list[Task | None]:
        return [replies.task_from_reply(task_id, row) for task_id, row in zip(ids, reply, strict=True)]

    return Operation("read", "", (0, *ids), read)


def read_result(task_id: str) -> Operation[Result | None]:
    """The state and everything committed so far of one task; None when the ledger does not hold it.

    Items of an ended task that have neither a vector nor an error get the error of the task's end.
    """
    return Operation("read", "", (1, task_id), lambda reply: replies.result_from_reply(task_id, reply[0]))


def read_committed(task_id: str) -> Operation[Committed | None]:
    """State and committed units of one task; None when the ledger does not hold it."""
    return Operation("read", "", (1, task_id), lambda reply: replies.committed_from_reply(task_id, reply[0]))


def read_all_committed(task_ids: Sequence[str]) -> Operation[list[Committed | None]]:
    """The same of several tasks, in the order asked for."""
    ids = tuple(task_ids)

    def read(reply: list[Any]) -> list[Committed | None]:
        return [replies.committed_from_reply(task_id, row) for task_id, row in zip(ids, reply, strict=True)]

    return Operation("read", "", (1, *ids), read)


def list_tasks(
    owner: str, *, limit: int, after: str = "", states: Sequence[State] = (), look: int = LOOK
) -> Operation[TaskPage]:
    """Up to `limit` of an owner's listed tasks in one of `states` (none: all), older than the one with id `after`.

    It reads one task more than `limit` and looks at `look` entries at most, so a part may hold fewer although there are
    more. Running it again is harmless: all that it changes is that ids of tasks which are gone leave the list.
    """
    return Operation(
        "list", "", (owner, after, limit, max(look, limit + 1), " ".join(states)), replies.task_page_from_reply
    )


def cancel(queue: str, task_id: str) -> Operation[CancelOutcome]:
    """Ends a task: its units never start, finished vectors stay readable."""
    return Operation("cancel", queue, (task_id,), lambda reply: CancelOutcome(reply.decode()), promised=True)


def forget(queue: str, task_id: str) -> Operation[bool]:
    """Cancels a task if it is open and removes every trace of it; False when there was none."""
    return Operation("forget", queue, (task_id,), bool, promised=True)


def forget_all(queue: str, task_ids: Sequence[str]) -> Operation[int]:
    """The same with several tasks of one model; how many there were."""
    return Operation("forget", queue, tuple(task_ids), int)


def want(queue: str, task_id: str, for_ms: int, *, shorten: bool) -> Operation[bool]:
    """Moves the latest moment at which anybody wants an open synchronous task to `for_ms` from now.

    `shorten`: the caller has gone; otherwise the moment only moves later. False when the task has ended or has no such
    moment.
    """
    return Operation("want", queue, (task_id, for_ms, int(shorten)), bool)


# ---- workers ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What a drain asks for.

    Attributes:
        worker: name of the drain; its wake-up channel carries it too. It is or starts with the worker's id and a "/".
        token: unique for this call. It is used again to repeat the call after a lost reply, and after a wait that
            brought no claim: the caller may have been handed one that it did not hear of. Starts as `worker` does.
        budget: estimated tokens; at least one unit is taken whatever it costs.
        online_budget: the same for the online lane; None: as `budget`.
        large_budget: the same for large units, of which a claim of the online lane has none or nothing else: those of
            several texts that alone reach `online_budget`. None: as `online_budget`.
        rate: the caller's own tokens per second. It takes no more of a lane than its part of the speed of all live
            workers; one that is `alone` the part of its process, by what that reported. 0: whatever the budget allows.
        max_units: at most 1,000.
        lease_ms: from now, by the server's clock.
        linger_ms: 0, or how long the caller is ready to wait if there is nothing.
        rang: this is the drain's first claim: the bell message has arrived.
        online_only: take from the online lane or nothing, and do not linger.
        small_only: the same, and only of tasks that are not as large as a large unit.
        alone: the caller is the only stream of its process.
        suspect: take one suspect or nothing, and do not linger. The worker process runs nothing else until this claim
            is done: two texts at a time could be convicted for each other's deaths.
        stamp: of the caller's model (`ModelEntry.stamp`); "" for a queue that needs no model.
    """

    worker: str
    token: str
    budget: int
    max_units: int
    lease_ms: int
    linger_ms: int = 0
    rang: bool = False
    online_only: bool = False
    alone: bool = True
    online_budget: int | None = None
    large_budget: int | None = None
    small_only: bool = False
    rate: float = 0
    suspect: bool = False
    stamp: str = ""


def claim(queue: str, request: ClaimRequest) -> Operation[Claim]:
    """Takes units of one lane up to a cost and leases them, or registers the caller as lingering. One atomic step.

    Raises on reading:
        ModelChanged: the queue's workers serve another model than the caller has.
    """
    r = request
    online_budget = r.budget if r.online_budget is None else r.online_budget
    named: dict[str, Argument] = {
        "worker": r.worker,
        "token": r.token,
        "budget": r.budget,
        "online_budget": online_budget,
        "max_units": r.max_units,
        "lease_ms": r.lease_ms,
        "linger_ms": r.linger_ms,
        "rang": int(r.rang),
        "online_only": int(r.online_only),
        "suspect": int(r.suspect),
        "alone": int(r.alone),
        "rate": r.rate,
        "stamp": r.stamp,
        "large_budget": online_budget if r.large_budget is None else r.large_budget,
        "small_only": int(r.small_only),
    }
    return Operation("claim", queue, (), partial(_claimed, r.token, suspect=r.suspect), named)


def _claimed(token: str, reply: list[Any], *, suspect: bool = False) -> Claim:
    if reply[0] == b"changed":
        raise ModelChanged("Workers serve another model under this name than the one that this process has loaded.")
    bell_due, wait_ms, more, lane, suspects, *units = reply
    return Claim(
        token=token,
        units=tuple(replies.unit_from_reply(unit) for unit in units),
        lane=Lane(lane.decode()) if lane else None,
        more=bool(int(more)),
        suspects=bool(int(suspects)),
        wait_ms=int(wait_ms),
        bell_due=bool(int(bell_due)),
        suspect=suspect,
    )


def handed_claim(message: bytes) -> Claim | None:
    """The claim that SUBMIT has made for a lingering caller, from what woke it; None: it must ask again.

    A message may come late. A claim with another token than the caller waits with was made for an earlier wait.
    """
    if b"\n" not in message:
        return None
    token, *reply = pieces_of(message)
    units = [reply[at : at + 11] for at in range(5, len(reply), 11)]
    return _claimed(token.decode(), [*reply[:5], *units])


def commit(
    queue: str, token: str, finished: Sequence[Finished], *, forward_passes: int = 0, padded_tokens: int = 0
) -> Operation[list[CommitOutcome]]:
    """Stores the outcomes of units, each only if `token` still holds it. The reply has one outcome per unit."""
    arguments: list[Argument] = [token, forward_passes, padded_tokens]
    for f in finished:
        u = f.unit
        arguments += [u.task_id, u.unit_id, u.first, u.items, f.failed, f.tokens, f.extra(), f.outcome]
    return Operation("commit", queue, tuple(arguments), lambda reply: [CommitOutcome(code) for code in reply])


def release(queue: str, token: str) -> Operation[bool]:
    """Gives back what a claim still holds and refunds the attempt: the worker stops, nothing was wrong.

    True: the caller must send a bell.
    """
    return Operation("release", queue, (token,), bool)


def lose(queue: str, token: str) -> Operation[bool]:
    """Gives back what a claim still holds as suspects: its work failed and no item can be named.

    True: the caller must send a bell.
    """
    return Operation("lose", queue, (token,), bool)


def abandon(queue: str, worker: str) -> Operation[bool]:
    """Declares the earlier claims of `worker` lost: its previous incarnation died. True: the caller must send a bell.

    Without it they would wait for the end of their lease. The items come back as suspects, each to be run alone.
    """
    return Operation("abandon", queue, (worker,), bool)


def renew(queue: str, token: str, lease_ms: int) -> Operation[bool]:
    """Prolongs a lease; False when it is lost already."""
    return Operation("renew", queue, (token, lease_ms), bool)


def charge(queue: str, task_id: str, cost: int) -> Operation[bool]:
    """Charges the owner of an open task this much beyond its cost, which nobody knew before. Harmless twice."""
    return Operation("charge", queue, (task_id, cost), bool)


def leave(queue: str, worker: str, *, warm: bool, token: str = "") -> Operation[bool]:
    """A drain ends: it no longer lingers. `warm`: it did work and wants the bell rung once more.

    `token`: of the CLAIM with which it lingered last, if it has not asked again: what it was handed is given back.
    True: the caller must send a bell.
    """
    return Operation("leave", queue, (worker, int(warm), token), bool)


def call_idle(queue: str) -> Operation[int]:
    """Wakes all workers that wait for a bell: Redis has refused one. Needs no memory; how many have heard it."""
    return Operation("call_idle", queue, (), int)


def watch(queue: str) -> Operation[Watched]:
    """Housekeeping that must not depend on a live worker: returns expired leases, ends expired tasks, rings."""
    return Operation(
        "watch",
        queue,
        (),
        lambda reply: Watched(bool(reply[0]), ready=reply[1], leases=reply[2], expired=reply[3], more=bool(reply[4])),
    )


# ---- models and workers ----------------------------------------------------------------------------------------------


def check_schema() -> Operation[None]:
    """Claims an empty Redis for this version of the data model.

    Raises on reading:
        SchemaMismatch: another version's data is there.
    """

    def read(version: bytes) -> None:
        if int(version) != SCHEMA_VERSION:
            raise SchemaMismatch(
                f"This Redis holds embedq data of schema {int(version)}; this version needs {SCHEMA_VERSION}. "
                f"Use an empty Redis database (EMBEDQ_REDIS_URL), or the version that wrote this one."
            )

    return Operation("schema", "", (SCHEMA_VERSION,), read)


def reference(revision: str, vectors: bytes) -> Operation[bytes]:
    """Stores the vectors that a revision stands for, unless there are some; those that are stored now."""
    return Operation("reference", "", (revision, vectors), bytes)


def register(queue: str, entry: ModelEntry, *, worker: str = "", ttl_ms: int = 0) -> Operation[bool]:
    """Records a loaded model under its served name, and that `worker` lives for `ttl_ms` with it; counts the load.

    False: other workers live and serve another model under this name; nothing has changed. Where they have gone, their
    claims are taken back, and tasks that they have half done end with `model_changed` when their turn comes.
    """
    return Operation("register", queue, (entry.to_json(), entry.stamp, worker, ttl_ms), bool)


def beat(queue: str, worker: WorkerEntry, ttl_ms: int, entry: ModelEntry | None = None) -> Operation[None]:
    """A worker with a loaded model says that it lives, for `ttl_ms`, and what it serves.

    It does not count as live when another model is served by now.
    """
    served = (entry.to_json(), entry.stamp) if entry else (b"", "")
    arguments = (worker.id, ttl_ms, worker.rate, worker.to_json(), *served)
    return Operation("beat", queue, arguments, lambda _: None)


def retire(queue: str, worker: str) -> Operation[None]:
    """A worker stops: it no longer counts as live. The last known rate stays."""
    return Operation("retire", queue, (worker,), lambda _: None)


def overview(*also: str) -> Operation[Mapping[str, ModelOverview]]:
    """All registered models with their live workers, backlog and counters, by served name.

    `also`: names to include although no worker has registered them yet.
    """

    def read(reply: list[Any]) -> Mapping[str, ModelOverview]:
        use, *rows = reply
        redis = RedisUse(*use)
        return {row[0].decode(): ModelOverview.from_reply(row, redis) for row in rows}

    return Operation("overview", "", also, read)


def _retry_after(seconds: float) -> int:
    """Up to a quarter longer, so that those who are refused together do not come back together."""
    wait_s = max(1, min(MAX_RETRY_AFTER_S * 4 // 5, math.ceil(seconds)))
    return wait_s + random.randint(0, wait_s // 4)  # noqa: S311 - no secret


def backlog_full(wait_s: float, before_s: float) -> BacklogFull:
    """The error for a task that there is room for after `wait_s`. So much work would be done before it now."""
    told_s = _retry_after(wait_s)
    return BacklogFull(
        f"About {before_s:.0f} s of work would be done before this; try again in {told_s} s. Nothing was stored.",
        retry_after_s=told_s,
        wait_s=wait_s,
        before_s=before_s,
    )


def _submitted(reply: list[Any]) -> SubmitReply:
    outcome = reply[0]
    if outcome == b"full":
        raise backlog_full(float(reply[1]), float(reply[2]))
    if outcome in {b"memory", b"share"}:
        wait_s = _retry_after(float(reply[1]))
        what = "The queue's memory is full" if outcome == b"memory" else "Your share of the queue's memory is full"
        message = f"{what}; try again in {wait_s} s, or delete results that you have read. Nothing was stored."
        raise StorageFull(message, retry_after_s=wait_s)
    if outcome == b"conflict":
        raise Refused(
            "idempotency_key_reused",
            "This Idempotency-Key was used with another body. Use a new key for a new request.",
        )
    if outcome == b"key":
        raise key_refusal(reply)
    _, task_id, bell_due, *limited = reply
    room = KeyRoom(int(limited[0][0]), int(limited[0][1]), float(limited[0][2])) if limited else None
    return SubmitReply(task_id=task_id.decode(), joined=outcome == b"joined", bell_due=bool(bell_due), room=room)


def key_refusal(reply: Sequence[bytes]) -> RequestError:
    """The error for {'key', name of the limit, its number, what counts against it, seconds or -1: never}."""
    limit, most, have, wait_s = reply[1].decode(), int(reply[2]), int(reply[3]), float(reply[4])
    if wait_s < 0:
        never = TooMany(
            "key_limit",
            f"This request alone exceeds a limit of your key: {limit} is {most:,}. Send it in parts. "
            "Nothing was stored.",
        )
        never.should_retry = False
        return never
    after_s = retry_after_of_key(wait_s)
    used = _USED[limit].format(have)
    return TooMany(
        "rate_limited" if limit in _RATES else "key_limit",
        f"The limit of your key is reached: {limit} is {most:,}{used}. Try again in {after_s} s. Nothing was stored.",
        retry_after_s=after_s,
    )


_RATES = {"tokens_per_minute", "requests_per_second"}
_USED = {
    "tokens_per_minute": ", and this request needs {:,}",
    "queued_tokens": ", and {:,} are queued",
    "open_jobs": ", and {:,} have not ended",
}


def retry_after_of_key(wait_s: float) -> int:
    """Seconds of `Retry-After`, up to a quarter longer than it takes: not all callers of a key come back at once.

    However long it is: a client that waits for less would come for nothing.
    """
    whole_s = max(1, math.ceil(wait_s))
    return whole_s + random.randint(0, whole_s // 4)  # noqa: S311 - no secret


@dataclass(frozen=True, slots=True)
class Taken:
    """What TAKE did.

    Attributes:
        wait_s: 0, or how long the owner must wait before its next request.
        limit: requests that the owner may make at once.
        left: of them now.
        reset_s: seconds until all are left.
    """

    wait_s: float
    limit: int
    left: int
    reset_s: float


def take_request(owner: str, per_s: float) -> Operation[Taken]:
    """Counts one request of an owner that may make so many in a second. Again: as one more."""

    def read(reply: list[bytes]) -> Taken:
        wait_ms, left, reset_ms = (int(number) for number in reply)
        return Taken(wait_ms / 1000, max(1, int(per_s)), left, reset_ms / 1000)

    return Operation("take", "", (owner, per_s), read)

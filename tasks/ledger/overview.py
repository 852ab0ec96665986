"""Figures of queues (`lua/overview.lua`) and accounts of owners. All frozen."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tasks.ledger.heartbeat import Loading, Worker
from tasks.ledger.packed import numbers
from tasks.ledger.redis_keys import owner_key
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Lane
from tasks.model import Model

_ENDED = ("ended_", "items_", "batches_", "ingestions_", "ingested_", "setbacks_")
_LOWEST, _HIGHEST = 2, 27
TOOK_BOUNDS_S = tuple(2**k / 1000 for k in range(_LOWEST, _HIGHEST + 1))
"""Upper bounds of `Took.counts`: each is twice the one before, from 4 ms to 37 h."""
_TOOK = re.compile(rf"took_({'|'.join(Lane)})_(\d+|ms)")


@dataclass(frozen=True, slots=True)
class Took:
    """How long tasks that completed took from their acceptance to their end, by Redis's clock."""

    counts: tuple[int, ...]
    """By the bounds `TOOK_BOUNDS_S`, not summed up; the last one counts what took longer than all of them."""
    sum_s: float


def took_counts(completed: Iterable[tuple[Lane, int]]) -> dict[str, int]:
    """What a heartbeat adds to the totals for tasks that completed: lane, and milliseconds that it took (`Queue.took`)."""
    counts: dict[str, int] = {}
    for lane, ms in completed:
        bucket = min(max(_LOWEST, (ms - 1).bit_length() if ms > 0 else 0), _HIGHEST + 1)
        for name, n in ((f"took_{lane}_{bucket}", 1), (f"took_{lane}_ms", ms)):
            counts[name] = counts.get(name, 0) + n
    return counts


@dataclass(frozen=True, slots=True)
class RedisUse:
    """What all queues share."""

    used_bytes: int = 0
    limit_bytes: int = 0
    """0: there is none, or nobody has looked yet."""
    reserved_bytes: int = 0
    """Of vectors that open tasks may still need."""
    open_batches: int = 0
    open_ingestions: int = 0
    """Not ended, or with traces that are still to be removed."""

    @property
    def memory_percent(self) -> int:
        """Memory in use, of `maxmemory`; 0 when there is no limit."""
        return 100 * self.used_bytes // self.limit_bytes if self.limit_bytes else 0


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for one model, and who serves it.

    Attributes:
        name: the served name of the model, or `DOCUMENTS`.
        model: None when no worker has ever been ready.
        workers: those that beat.
        loading: those that load the model.
        rate: estimated tokens per second, summed over live workers, or the last known; None when never known.
        absent_ms: since when no worker beats; None where one does, and where none ever did.
        backlog_cost: estimated tokens queued or running, per lane.
        backlog_tasks: open tasks, per lane.
        owners: how many have open tasks, per lane.
        backlog_bytes: of payloads that wait.
        leases: claims under way.
        counters: totals since the data began, by name, but those of `took` and `ended`.
        took: how long tasks took, by lane, since the data began.
        ended: totals since the data began, by name: `ended_{lane}_{state}` of tasks that did not complete,
            `items_{lane}_completed` and `items_{lane}_failed`; of the documents queue also `batches_{status}`,
            `ingestions_{status}`, `ingested_{what}` and `setbacks_{what}`.
        oldest_waiting_s: by lane, seconds since the acceptance of the oldest task among those next in line that have
            unclaimed texts. Lanes without any are left out.
        redis: the same for all queues.
    """

    name: str
    model: Model | None
    workers: Sequence[Worker]
    rate: float | None
    backlog_cost: Mapping[Lane, int]
    backlog_tasks: Mapping[Lane, int]
    owners: Mapping[Lane, int]
    backlog_bytes: int
    leases: int
    loading: Sequence[Loading] = ()
    absent_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    took: Mapping[Lane, Took] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)
    oldest_waiting_s: Mapping[Lane, float] = field(default_factory=dict)
    redis: RedisUse = RedisUse()

    @property
    def storage_outage(self) -> tuple[str, float, str] | None:
        """Code, since when in Unix seconds, and why, while no live worker gets on with what needs the storage."""
        if not self.workers or not all(worker.storage_error for worker in self.workers):
            return None
        first = min(self.workers, key=lambda worker: worker.storage_error_since)
        return first.storage_error, first.storage_error_since, first.storage_detail

    @classmethod
    def from_reply(cls, row: list[Any], redis: RedisUse) -> Self:
        """From one row of `overview.lua`."""
        name, model, packed, flat, leases, oldest_ms, workers, loading = row
        state = numbers(packed)
        counts = {key.decode(): int(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}
        return cls(
            name=name.decode(),
            model=Model.from_json(model) if model else None,
            workers=tuple(Worker.from_json(worker) for worker in workers),
            rate=float(state.get("rate", 0)) or None,
            backlog_cost=_by_lane(state, "cost"),
            backlog_tasks=_by_lane(state, "open"),
            owners=_by_lane(state, "owners"),
            backlog_bytes=int(state.get("bytes", 0)),
            leases=leases,
            loading=tuple(Loading.from_json(one) for one in loading),
            absent_ms=None if workers else int(state.get("absent", 0)) or None,
            counters={n: value for n, value in counts.items() if not n.startswith((*_ENDED, "took_"))},
            took=_took(counts),
            ended={n: value for n, value in counts.items() if n.startswith(_ENDED)},
            oldest_waiting_s={lane: ms / 1000 for lane, ms in zip(Lane, oldest_ms, strict=True) if ms >= 0},
            redis=redis,
        )


def overview(*also: str) -> Operation[Mapping[str, Queue]]:
    """The queues of all registered models, by served name.

    `also`: names to include although no worker has registered them.
    """

    def read(reply: list[Any]) -> Mapping[str, Queue]:
        (memory, batches, ingestions), *rows = reply
        seen = numbers(memory)
        reserved = sum(int(numbers(row[2]).get("reserved", 0)) for row in rows)
        redis = RedisUse(int(seen.get("used", 0)), int(seen.get("limit", 0)), reserved, batches, ingestions)
        return {row[0].decode(): Queue.from_reply(row, redis) for row in rows}

    return Operation(read, "overview", "", also)


@dataclass(frozen=True, slots=True)
class Account:
    """What an owner has, of all kinds.

    Attributes:
        bytes: in Redis, of tasks, results and records.
        stored, files: bytes and number of stored files.
        jobs: open listed tasks, batches and ingestions.
        revoked, purged: whether its key was revoked, or all that it has is to go.
        numbers: all sums, by name.
    """

    bytes: int = 0
    stored: int = 0
    files: int = 0
    jobs: int = 0
    revoked: bool = False
    purged: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)

    def cost(self, queue: str, lane: Lane) -> int:
        """Estimated tokens that it has queued or running there."""
        return int(self.numbers.get(f"cost:{queue}:{lane}", 0))

    def tasks(self, queue: str, lane: Lane) -> int:
        """Its open tasks there."""
        return int(self.numbers.get(f"open:{queue}:{lane}", 0))


def read_account(owner: str) -> Operation[Account]:
    """The account of an owner; all 0 of one that has nothing."""

    def read(replies: list[Any]) -> Account:
        sums = numbers(replies[0])
        counts = {name: int(sums.get(name, 0)) for name in ("bytes", "stored", "files", "jobs")}
        marks = {name: bool(sums.get(name)) for name in ("revoked", "purged")}
        return Account(**counts, **marks, numbers=sums)

    return Operation(read, commands=(("GET", owner_key(owner)),))


def _by_lane(state: Mapping[str, float], name: str) -> Mapping[Lane, int]:
    return {lane: int(state.get(f"{name}_{lane}", 0)) for lane in Lane}


def _took(totals: Mapping[str, int]) -> Mapping[Lane, Took]:
    counts: dict[Lane, list[int]] = {}
    sums_s: dict[Lane, float] = {}
    for name, value in totals.items():
        if not (found := _TOOK.fullmatch(name)):
            continue
        lane = Lane(found[1])
        if found[2] == "ms":
            sums_s[lane] = value / 1000
        else:
            counts.setdefault(lane, [0] * (len(TOOK_BOUNDS_S) + 1))[int(found[2]) - _LOWEST] = value
    return {lane: Took(tuple(counted), sums_s.get(lane, 0)) for lane, counted in counts.items()}

"""Figures of queues (`lua/overview.lua`) and accounts of owners. All frozen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tasks.errors import NotFound
from tasks.item import DEFAULT_RATE
from tasks.ledger.heartbeat import LoadingWorker, Worker
from tasks.ledger.packed import numbers
from tasks.ledger.redis_keys import owner_key
from tasks.ledger.scripts import Operation
from tasks.ledger.task import Lane
from tasks.model import Model, from_json

UNKNOWN_MODEL_MAX_TOKENS = 512
"""Assumed of a model that no worker has loaded yet. It only prices texts."""
PIECE_S = 0.25
"""Of work in one piece, on one stream."""
PIECE_TOKENS = 4096
"""Estimated tokens of one piece, at most."""

_LOWEST, _HIGHEST = 2, 27
TOOK_BOUNDS_S = tuple(2**k / 1000 for k in range(_LOWEST, _HIGHEST + 1))
"""Upper bounds of `Queue.took`: each is twice the one before, from 4 ms to 37 h."""


def took_counts(completed: Iterable[tuple[Lane, int]]) -> dict[str, int]:
    """What a heartbeat adds to the totals (`Queue.took`) for tasks that completed: lane, and how many ms each took."""
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


def _nothing() -> Mapping[Lane, int]:
    return dict.fromkeys(Lane, 0)


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits for one model, and who serves it. Of a name alone: a model of which nothing is known yet.

    Attributes:
        name: the served name of the model, or `DOCUMENTS`.
        model: None when no worker has ever been ready.
        workers: those that beat, and get work.
        refused: what Redis refuses others that beat, for people; "": nothing.
        loading: those that load the model.
        rate: estimated tokens per second, summed over live workers, or the last known; None when never known.
        absent_ms: since when no worker beats; None where one does, and where none ever did.
        backlog_cost: estimated tokens queued or running, per lane.
        backlog_tasks: open tasks, per lane.
        owners: how many have open tasks, per lane.
        backlog_bytes: of payloads that wait.
        leases: claims under way.
        counters: totals since the data began, by name. `ended_{lane}_{state}` of tasks that did not complete,
            `items_{lane}_completed` and `items_{lane}_failed`, in all lanes `committed_items` and `failed_items`; of
            the documents queue also `batches_{status}`, `ingestions_{status}`, `ingested_{what}` and `setbacks_{what}`.
            Of `claims`, `forward_passes`, `padded_tokens`, `tokens` and `stale_units` each worker tells its part with
            its heartbeat.
        oldest_waiting_s: by lane, seconds since the acceptance of the oldest task among those next in line that have
            unclaimed texts. Lanes without any are left out.
        redis: the same for all queues.
    """

    name: str
    model: Model | None = None
    workers: Sequence[Worker] = ()
    refused: str = ""
    loading: Sequence[LoadingWorker] = ()
    rate: float | None = None
    backlog_cost: Mapping[Lane, int] = field(default_factory=_nothing)
    backlog_tasks: Mapping[Lane, int] = field(default_factory=_nothing)
    owners: Mapping[Lane, int] = field(default_factory=_nothing)
    backlog_bytes: int = 0
    leases: int = 0
    absent_ms: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    oldest_waiting_s: Mapping[Lane, float] = field(default_factory=dict)
    redis: RedisUse = RedisUse()

    @property
    def speed(self) -> float:
        """Estimated tokens per second, or what is assumed of a model that nobody has measured yet."""
        return self.rate or DEFAULT_RATE

    @property
    def max_tokens(self) -> int:
        """The most tokens that the model reads of one text."""
        return self.model.max_tokens if self.model else UNKNOWN_MODEL_MAX_TOKENS

    @property
    def piece_cost(self) -> int:
        """Estimated tokens that one piece may hold: what one stream does in `PIECE_S`, but no more than the most."""
        return max(1, min(PIECE_TOKENS, int(PIECE_S * self.speed / max(1, self.streams))))

    @property
    def streams(self) -> int:
        """Claims that its workers work on at the same time."""
        return sum(worker.streams for worker in self.workers)

    def took(self, lane: Lane) -> tuple[Sequence[int], float]:
        """How many tasks completed by `TOOK_BOUNDS_S`, not summed up, and behind them how many later; seconds of all.

        From their acceptance to their end, by Redis's clock, since the data began.
        """
        counts = [self.counters.get(f"took_{lane}_{k}", 0) for k in range(_LOWEST, _HIGHEST + 2)]
        return counts, self.counters.get(f"took_{lane}_ms", 0) / 1000

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
        name, model, packed, flat, leases, oldest_ms, workers, loading, absent_ms = row
        state = numbers(packed)
        counts = {key.decode(): int(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}
        for total, what in (("committed_items", "completed"), ("failed_items", "failed")):
            if number := sum(counts.get(f"items_{lane}_{what}", 0) for lane in Lane):
                counts[total] = number
        beating = [from_json(Worker, worker) for worker in workers]
        return cls(
            name=name.decode(),
            model=Model.from_json(model) if model else None,
            workers=tuple(worker for worker in beating if not worker.refused),
            refused=next((worker.refused for worker in beating if worker.refused), ""),
            rate=float(state.get("rate", 0)) or None,
            backlog_cost=_by_lane(state, "cost"),
            backlog_tasks=_by_lane(state, "open"),
            owners=_by_lane(state, "owners"),
            backlog_bytes=int(state.get("bytes", 0)),
            leases=leases,
            loading=tuple(from_json(LoadingWorker, one) for one in loading),
            absent_ms=int(absent_ms) or None,
            counters=counts,
            oldest_waiting_s={lane: ms / 1000 for lane, ms in zip(Lane, oldest_ms, strict=True) if ms >= 0},
            redis=redis,
        )


def overview(*also: str) -> Operation[Mapping[str, Queue]]:
    """The queues of all registered models, by served name.

    `also`: names to include although no worker has registered them.
    """

    def read(reply: list[Any]) -> Mapping[str, Queue]:
        (used, limit, batches, ingestions), *rows = reply
        reserved = sum(numbers(row[2]).get("reserved", 0) for row in rows)
        redis = RedisUse(int(used), int(limit), int(reserved), batches, ingestions)
        return {row[0].decode(): Queue.from_reply(row, redis) for row in rows}

    return Operation(read, "overview", "", also)


_LIBRARY = "sentence-transformers/"
"""The library finds its own models without it."""
_MAX_NAMED = 5
_SHOWN_CHARS = 200


def find_queue(name: str, own: Sequence[str], queues: Mapping[str, Queue]) -> Queue:
    """The queue of the model that a caller names.

    Args:
        name: canonical, or an alias; one of the library's own models may go without `sentence-transformers/`.
        own: the configured model's names, the canonical one first: known before any worker has told them.
        queues: what the ledger knows, by canonical name.

    Raises:
        NotFound: nobody serves it; with the names of those that are served.
    """
    aliases = {alias: queue for queue, seen in queues.items() if seen.model for alias in seen.model.aliases}
    named = {**aliases, **dict(zip(queues, queues, strict=True)), **dict.fromkeys(own, own[0])}
    queue = named.get(name) or named.get(_LIBRARY + name)
    if queue:
        return queues.get(queue) or Queue(queue)
    served = [own[0], *sorted(queues.keys() - {own[0]})]
    more = f" and {len(served) - _MAX_NAMED} more, see GET /v1/models" if len(served) > _MAX_NAMED else ""
    raise NotFound(
        "model_not_found",
        f"There is no model {name[:_SHOWN_CHARS]!r} here. This server serves {', '.join(served[:_MAX_NAMED])}{more}.",
        param="model",
    )


@dataclass(frozen=True, slots=True)
class Account:
    """What an owner has, of all kinds.

    `numbers`: by name; what is not there is 0. `bytes` in Redis, `stored` bytes and number of `files` in the storage,
    open `jobs`, `revoked` or `purged` (above 0: it is), `debt:QUEUE` and more.
    """

    numbers: Mapping[str, int]

    def cost(self, queue: str, lane: Lane) -> int:
        """Estimated tokens that it has queued or running there."""
        return self.numbers.get(f"cost:{queue}:{lane}", 0)

    def tasks(self, queue: str, lane: Lane) -> int:
        """Its open tasks there."""
        return self.numbers.get(f"open:{queue}:{lane}", 0)


def read_account(owner: str) -> Operation[Account]:
    """The account of an owner; all 0 of one that has nothing."""

    def read(replies: list[Any]) -> Account:
        sums = numbers(replies[0])
        return Account({name: int(number) for name, number in sums.items()})

    return Operation(read, commands=(("GET", owner_key(owner)),))


def _by_lane(state: Mapping[str, float], name: str) -> Mapping[Lane, int]:
    return {lane: int(state.get(f"{name}_{lane}", 0)) for lane in Lane}

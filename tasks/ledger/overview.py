"""What the ledger knows of models and of the workers that serve them. All frozen."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Self

import orjson

from tasks.errors import NotFound
from tasks.item import DEFAULT_RATE
from tasks.ledger.replies import fields_from_reply
from tasks.ledger.task import Lane

_STAMP_DIGITS = 12
_SHOWN_CHARS = 200
_LANES = (Lane.ONLINE, Lane.BULK)
"""As `overview.lua` orders them."""
_ENDED = ("ended_", "items_", "batches_", "ingestions_", "ingested_", "setbacks_")
UNKNOWN_MODEL_MAX_TOKENS = 512
"""Assumed of a model that no worker has loaded yet. It only prices items."""


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model as its worker described it. Outlives the workers."""

    id: str
    """The name under which it is served."""
    model: str
    """Hub id or folder name it was loaded from."""
    revision: str
    dimension: int
    max_tokens: int
    prompts: tuple[str, ...]
    device: str
    compute: str
    precision: str
    created_at: int
    """Unix seconds at which it was first registered as it is."""
    aliases: tuple[str, ...] = ()
    """Other names for it, as its worker's EMBEDQ_SERVED_NAME has them."""
    query_prompt: str | None = None
    """Of `prompts`, the one for queries; None: the model's default prompt, if it has one."""
    document_prompt: str | None = None
    """The same for documents."""
    similarity: str = "cosine"
    """How its vectors are compared: `cosine`, `dot`, `euclidean` or `manhattan`."""

    @property
    def made_by(self) -> str:
        """What made its vectors, in words: those of entries with the same ones can be compared."""
        return f"{self.model} (revision {self.revision})"

    @property
    def stamp(self) -> str:
        """12 hexadecimal digits: vectors of entries with the same ones may be mixed, however they are computed."""
        return sha256(f"{self.model} {self.revision} {self.dimension}".encode()).hexdigest()[:_STAMP_DIGITS]

    def to_json(self) -> bytes:
        """As stored in Redis."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Inverse of `to_json`; fields of a newer version are ignored."""
        fields = _known_fields(cls, data)
        return cls(**fields | {name: tuple(fields.get(name, ())) for name in ("prompts", "aliases")})


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """What one live worker says of itself with each beat."""

    id: str
    pid: int
    host: str
    started_at: float
    """Unix seconds at which its model was ready."""
    rate: float
    """Estimated tokens per second."""
    rss_bytes: int
    forward_passes: int = 0
    items: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    streams: int = 1
    """Claims that it works on at the same time."""
    dropped_bells: int = 0
    """Messages that were no bells, since its parent's start."""
    storage_error: str = ""
    """Code of what the storage last answered, while nothing that needs it goes on."""
    storage_error_since: float = 0.0
    """Unix seconds."""
    storage_detail: str = ""
    """The same for people: what is wrong with the storage of this worker, and what to do."""

    def to_json(self) -> bytes:
        """As stored in Redis."""
        return orjson.dumps(self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Inverse of `to_json`; fields of a newer version are ignored."""
        return cls(**_known_fields(cls, data))


_LOWEST, _HIGHEST = 2, 27
TOOK_BOUNDS_S = tuple(2**k / 1000 for k in range(_LOWEST, _HIGHEST + 1))
"""Upper bounds of `Took.counts`: each is twice the one before, from 4 ms to 37 h, as `lua/shared/ending.lua` counts."""
_TOOK = re.compile(rf"took_({'|'.join(Lane)})_(\d+|ms)")


@dataclass(frozen=True, slots=True)
class Took:
    """How long tasks that completed took from their acceptance to their end, by Redis's clock."""

    counts: tuple[int, ...]
    """By the bounds `TOOK_BOUNDS_S`, not summed up; the last one counts what took longer than all of them."""
    sum_s: float


@dataclass(frozen=True, slots=True)
class RedisUse:
    """What all queues share."""

    used_bytes: int = 0
    limit_bytes: int = 0
    """0: there is none, or nobody has looked for a minute."""
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
class ModelOverview:
    """Everything the web tier needs to know about one model's queue.

    Attributes:
        queue: name of the queue, the served name.
        entry: None when no worker has ever been ready.
        workers: those that beat.
        rate: estimated tokens per second, summed over live workers, or the last known; None when never known.
        backlog_cost: estimated tokens queued or running, per lane.
        backlog_tasks: open tasks, per lane.
        owner_cost: backlog_cost by owner, of those who have open tasks.
        owner_tasks: backlog_tasks likewise.
        counters: totals since the data began, by name (`rings`, `claims`, `committed_items`, `failed_items`,
            `stale_units`, `forward_passes`, `padded_tokens`, `tokens`, `model_loads`, `lost_leases`).
        memory_percent: Redis memory in use, of `maxmemory`; 0 when there is no limit.
        redis: the same for all queues.
        oldest_waiting_s: by lane, seconds since the acceptance of the oldest task among those next in line that have
            unclaimed texts: the first 4 of each of 8 owners. Lanes without any are left out.
        took: how long tasks took, by lane, since the data began.
        ended: totals since the data began, by name: `ended_{lane}_{state}` of tasks that did not complete,
            `items_{lane}_completed` and `items_{lane}_failed`; of the
            documents queue also `batches_{status}`, `ingestions_{status}`, `ingested_{what}` and `setbacks_{what}`.
    """

    queue: str
    entry: ModelEntry | None
    workers: Sequence[WorkerEntry]
    rate: float | None
    backlog_cost: Mapping[Lane, int]
    backlog_tasks: Mapping[Lane, int]
    backlog_bytes: int
    leases: int
    counters: Mapping[str, int]
    memory_percent: int
    owner_cost: Mapping[Lane, Mapping[str, int]] = field(default_factory=dict)
    owner_tasks: Mapping[Lane, Mapping[str, int]] = field(default_factory=dict)
    redis: RedisUse = RedisUse()
    oldest_waiting_s: Mapping[Lane, float] = field(default_factory=dict)
    took: Mapping[Lane, Took] = field(default_factory=dict)
    ended: Mapping[str, int] = field(default_factory=dict)

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
        name, entry, flat, leases, oldest_ms, *workers = row
        state = fields_from_reply(flat)
        rate = float(state.get("rate", 0))
        return cls(
            queue=name.decode(),
            entry=ModelEntry.from_json(entry) if entry else None,
            workers=tuple(WorkerEntry.from_json(w) for w in workers),
            rate=rate or None,
            backlog_cost={lane: int(state.get(f"cost_{lane}", 0)) for lane in Lane},
            backlog_tasks={lane: int(state.get(f"tasks_{lane}", 0)) for lane in Lane},
            backlog_bytes=int(state.get("bytes", 0)),
            leases=int(leases),
            counters={key[2:]: int(value) for key, value in state.items() if key.startswith("n_")},
            memory_percent=redis.memory_percent,
            owner_cost={lane: _by_owner(state, f"cost_{lane}:") for lane in Lane},
            owner_tasks={lane: _by_owner(state, f"tasks_{lane}:") for lane in Lane},
            redis=redis,
            oldest_waiting_s={lane: ms / 1000 for lane, ms in zip(_LANES, oldest_ms, strict=True) if ms >= 0},
            took=_took(state),
            ended={name: int(value) for name, value in state.items() if name.startswith(_ENDED)},
        )


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that callers may name, and all that is known of it when one of them does.

    Attributes:
        name: the canonical one, which is that of its queue.
        entry: what a worker said of it; None when none has loaded it yet.
        rate: estimated tokens per second of all its workers, or what is assumed of it.
        streams: claims that its workers work on at the same time.
    """

    name: str
    entry: ModelEntry | None
    rate: float
    streams: int

    @classmethod
    def from_overview(cls, name: str, overview: ModelOverview | None) -> Self:
        """From what the ledger knows of its queue; None: nothing yet."""
        if overview is None:
            return cls(name, None, DEFAULT_RATE, 0)
        streams = sum(worker.streams for worker in overview.workers)
        return cls(name, overview.entry, overview.rate or DEFAULT_RATE, streams)

    @property
    def max_tokens(self) -> int:
        """The most tokens that it reads of one text."""
        return self.entry.max_tokens if self.entry else UNKNOWN_MODEL_MAX_TOKENS

    def unit_cost(self, most: int, unit_s: float) -> int:
        """Estimated tokens that one unit may hold: what one stream does in `unit_s`, but no more than `most`."""
        return max(1, min(most, int(unit_s * self.rate / max(1, self.streams))))


_LIBRARY = "sentence-transformers/"
"""The library finds its own models without it."""
_MAX_NAMED = 5


def find_served(name: str, own: Sequence[str], overviews: Mapping[str, ModelOverview]) -> ServedModel:
    """The model that a caller names.

    Args:
        name: canonical, or an alias; one of the library's own models may go without `sentence-transformers/`.
        own: the configured model's names, the canonical one first: known before any worker has told them.
        overviews: what the ledger knows, by canonical name.

    Raises:
        NotFound: nobody serves it; with the names of those that are served.
    """
    for wanted in (name, _LIBRARY + name):
        for queue, names in _names(own, overviews):
            if wanted in names:
                return ServedModel.from_overview(queue, overviews.get(queue))
    served = [own[0], *sorted(overviews.keys() - {own[0]})]
    more = f" and {len(served) - _MAX_NAMED} more, see GET /v1/models" if len(served) > _MAX_NAMED else ""
    raise NotFound(
        "model_not_found",
        f"There is no model {name[:_SHOWN_CHARS]!r} here. This server serves {', '.join(served[:_MAX_NAMED])}{more}.",
        param="model",
    )


def _names(own: Sequence[str], overviews: Mapping[str, ModelOverview]) -> Iterator[tuple[str, Collection[str]]]:
    yield own[0], own
    yield from ((queue, (queue,)) for queue in overviews)
    yield from ((queue, seen.entry.aliases) for queue, seen in overviews.items() if seen.entry)


def _known_fields(cls: type[ModelEntry | WorkerEntry], data: bytes) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {name: value for name, value in orjson.loads(data).items() if name in names}


def _by_owner(state: Mapping[str, bytes], prefix: str) -> Mapping[str, int]:
    return {name.removeprefix(prefix): int(value) for name, value in state.items() if name.startswith(prefix)}


def _took(state: Mapping[str, bytes]) -> Mapping[Lane, Took]:
    counts: dict[Lane, list[int]] = {}
    sums_s: dict[Lane, float] = {}
    for name, value in state.items():
        if not (found := _TOOK.fullmatch(name)):
            continue
        lane = Lane(found[1])
        if found[2] == "ms":
            sums_s[lane] = int(value) / 1000
        else:
            counts.setdefault(lane, [0] * (len(TOOK_BOUNDS_S) + 1))[int(found[2]) - _LOWEST] = int(value)
    return {lane: Took(tuple(counted), sums_s.get(lane, 0)) for lane, counted in counts.items()}

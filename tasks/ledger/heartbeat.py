"""Workers say that they live, and the housekeeping that comes with it: `lua/heartbeat.lua`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tasks.ledger.scripts import Argument, Operation
from tasks.model import Model


@dataclass(frozen=True, slots=True)
class Worker:
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
    refused: str = ""
    """What Redis refuses its streams, for people: it beats and gets no work."""
    deaths: int = 0
    """Of its process, since its parent's start."""
    died_at: float | None = None
    """The last time, in Unix seconds."""
    died_of: str | None = None
    """Of what: `signal 9, SIGKILL` or `exitcode 70`."""


@dataclass(frozen=True, slots=True)
class LoadingWorker:
    """What a worker says that has no model yet.

    Attributes:
        id: of the worker.
        model: what it loads.
        source: from where, in words.
        since: Unix seconds at which it began.
    """

    id: str
    model: str
    source: str
    since: float


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a heartbeat found.

    Attributes:
        served: False: other workers live and serve another model under this name. Nothing has changed.
        bell_due: the caller must send one bell message.
        ready: tasks with work that nobody has claimed.
        leases: claims under way.
        more: it looked at as many as one call may, and more may be overdue.
    """

    served: bool
    bell_due: bool
    ready: int = 0
    leases: int = 0
    more: bool = False


def join(queue: str, worker: Worker, model: Model | None, ttl_ms: int) -> Operation[Pulse]:
    """A worker has loaded its model and lives for `ttl_ms` with it; None: of a queue that needs no model.

    What an earlier process of this id held is lost now, not at the end of its lease. Where all workers have gone that
    served another model, their claims are taken back, and tasks that they have half done end when their turn comes.
    """
    return _heartbeat(queue, "join", worker.id, ttl_ms=ttl_ms, entry=worker, model=model)


def beat(
    queue: str,
    worker: Worker,
    model: Model | None,
    ttl_ms: int,
    *,
    tokens: Iterable[str] = (),
    lease_ms: int = 0,
    counts: Mapping[str, int] | None = None,
) -> Operation[Pulse]:
    """A worker with a loaded model says that it lives, for `ttl_ms`.

    The claims of these `tokens` are held for `lease_ms` more. `counts` is added to the totals of the queue
    (`overview.Queue.counters`, `ended`, `took`); a call that is repeated after a lost reply adds it twice.
    """
    return _heartbeat(
        queue,
        "beat",
        worker.id,
        ttl_ms=ttl_ms,
        entry=worker,
        model=model,
        tokens=tokens,
        lease_ms=lease_ms,
        counts=counts,
    )


def stop(queue: str, worker_id: str, counts: Mapping[str, int] | None = None) -> Operation[Pulse]:
    """A worker stops: it no longer counts as live, and its claims are given back. The last known rate stays."""
    return _heartbeat(queue, "stop", worker_id, counts=counts)


def watch(queue: str) -> Operation[Pulse]:
    """Housekeeping alone, by one who is no worker: expired leases, what is overdue, the bell."""
    return _heartbeat(queue, "watch")


def loading(queue: str, what: LoadingWorker, ttl_ms: int) -> Operation[Pulse]:
    """A worker says that it still loads; it does not count as live. To be repeated within `ttl_ms`."""
    return _heartbeat(queue, "loading", what.id, ttl_ms=ttl_ms, entry=what)


def _heartbeat(
    queue: str,
    what: str,
    worker_id: str = "",
    *,
    ttl_ms: int = 0,
    entry: Worker | LoadingWorker | None = None,
    model: Model | None = None,
    tokens: Iterable[str] = (),
    lease_ms: int = 0,
    counts: Mapping[str, int] | None = None,
) -> Operation[Pulse]:
    rate = entry.rate if isinstance(entry, Worker) else 0
    served: tuple[Argument, ...] = (model.to_json(), model.stamp) if model else (b"", "")
    own = (worker_id, ttl_ms, rate, orjson.dumps(entry), *served, what, lease_ms, orjson.dumps(counts or {}), *tokens)

    def read(reply: list[Any]) -> Pulse:
        is_served, bell_due, ready, leases, _, more = reply
        return Pulse(bool(is_served), bool(bell_due), ready, leases, bool(more))

    return Operation(read, "heartbeat", queue, own)

"""What workers serve, as the API knows it: names and aliases, queues and speeds.

The API learns of it by the last overview of the ledger, at most about a second old (`api.waiting.ledger_watch`).
"""

import math
import time
from collections.abc import Callable, Mapping

from tasks.errors import NotFound, RedisUnavailable
from tasks.item import FLOAT32_BYTES
from tasks.ledger import DOCUMENTS, Admission, KeyRoom, Lane, ModelEntry, ModelOverview, Task
from tasks.ledger.executor import spread
from tasks.ledger.operations import MAX_RETRY_AFTER_S
from tasks.ledger.overview import ServedModel, find_served
from tasks.ledger.task import MAX_BACKLOG_BYTES, NO_KEY_LIMITS, KeyAdmission
from worker_config.settings import Settings

UNKNOWN_MODEL_DIMENSION = 1024
"""Assumed of a model that no worker has loaded yet, to reserve room for its vectors."""
_ITEM_BYTES = 64
_UNAWAITED_PART = 0.5
"""Share of the online lane for tasks without a waiting caller. The other half is for queries."""
_LONG_LIVED_PART = 0.9
"""Share of the memory for tasks whose results live long. The rest is for queries, whose results live a minute."""
_SURE_PART = 0.6
"""Of the time that a caller waits. The rest is for what the measured speed is wrong by, and for the pass of its text,
which ends with those behind it. At ten times the capacity 4 % of what was accepted came too late with 0.7, 0.6 % with
0.6."""
_OWNER_SHARE = 4.0
"""One of several callers may fill as many times what it leaves free: alone 4/5, two callers 4/9 each."""


class ServedModels:
    """Models by served name. Outlives workers: a model that was ever served is known, and so is the configured one.

    Args:
        settings: with the configured model and the limits.
        clock: seconds that only grow.
        several: whether there are several callers.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        several: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._several = several
        self._clock = clock
        self.own_model = settings.served_model_name
        self._own_names = settings.served_names
        self.overviews: Mapping[str, ModelOverview] = {}
        self.documents: ModelOverview | None = None
        """The queue of work that needs no model. No model is found under its name."""
        self.redis_up = False
        self.seen_at: float | None = None
        """When the ledger gave its last overview, in Unix seconds by this host's clock; None: not yet."""
        self._served: dict[str | None, ServedModel] = {}
        """Models that callers have named since the last overview, by the name that they used."""
        self._absent_since: dict[str, float] = {}
        """Models without a worker that beats, and when that was first seen since Redis answers."""

    def update(self, overviews: Mapping[str, ModelOverview]) -> None:
        """Takes in a new overview of the ledger."""
        self.overviews = {name: overview for name, overview in overviews.items() if name != DOCUMENTS}
        before = self._absent_since if self.redis_up else {}  # while Redis was away, no worker could beat
        absent = self.overviews.keys() - self.live_workers().keys()
        now = self._clock()
        self._absent_since = {name: before.get(name, now) for name in absent}
        self.documents = overviews.get(DOCUMENTS, self.documents)
        self._served = {}  # last: `served` takes it before it reads the overviews
        self.seen_at = time.time()
        self.redis_up = True

    def lost(self) -> None:
        """Redis did not answer; the last overview stays."""
        self.redis_up = False

    def queues(self) -> list[str]:
        """Canonical names of all known models, the configured one first."""
        return [self.own_model, *(name for name in sorted(self.overviews) if name != self.own_model)]

    def names(self) -> list[str]:
        """All names of known models; those of the configured one first, aliases behind their canonical name."""
        return list(dict.fromkeys(name for queue in self.queues() for name in self.names_of(queue)))

    def names_of(self, queue: str) -> list[str]:
        """All names of one model, the canonical one first."""
        own = self._own_names if queue == self.own_model else ()
        entry = self.entry(queue)
        return list(dict.fromkeys((queue, *own, *(entry.aliases if entry else ()))))

    def served(self, name: str | None) -> ServedModel:
        """The model that a request names; without a name the configured one.

        Raises:
            NotFound: nobody has ever served it here; with the names of those that are served.
            RedisUnavailable: Redis has not been reachable since the start, so nothing can be said.
        """
        kept = self._served  # before the overviews: threads come here too, and `update` replaces both in between
        served = kept.get(name)
        if served is not None:
            return served
        try:
            served = find_served(self.own_model if name is None else name, self._own_names, self.overviews)
        except NotFound:
            if self.seen_at is None:
                unknown = "The queue (Redis) does not answer; try again shortly."
                raise RedisUnavailable(unknown, retry_after_s=spread(3)) from None
            raise
        kept[name] = served
        return served

    def entry(self, model: str) -> ModelEntry | None:
        """What a worker said of the model; None when none has loaded it yet."""
        overview = self.overviews.get(model)
        return overview.entry if overview else None

    def storage_trouble(self) -> str:
        """What the first worker says whose storage is not as it should be; "" for nothing."""
        overviews = [*self.overviews.values(), *([self.documents] if self.documents else [])]
        workers = (worker for overview in overviews for worker in overview.workers if worker.storage_detail)
        return next((worker.storage_detail for worker in workers), "")

    def live_workers(self) -> dict[str, int]:
        """Number of workers that beat, by model; models without any are left out."""
        return {name: len(o.workers) for name, o in self.overviews.items() if o.workers}

    def absent_s(self, model: str) -> float:
        """For how long the model has had no worker that beats, as far as this process has seen; 0 if it has one."""
        since = self._absent_since.get(model)
        return 0 if since is None else self._clock() - since

    def admission(
        self,
        served: ServedModel,
        lane: Lane,
        dimensions: int | None,
        *,
        listed: bool,
        wait_s: float | None = None,
        key: KeyAdmission = NO_KEY_LIMITS,
    ) -> Admission:
        """The limits that SUBMIT checks for a task of this lane whose vectors are cut to `dimensions`.

        Args:
            served: its model.
            lane: of the task.
            dimensions: None: those of the model.
            listed: nobody waits for it on an open connection, and its result lives long.
            wait_s: its caller waits so long. What would not be done by then is work for nobody.
            key: limits of its caller's key.
        """
        s = self._settings
        dimension = dimensions or (served.entry.dimension if served.entry else UNKNOWN_MODEL_DIMENSION)
        online_s = s.max_backlog_s * (_UNAWAITED_PART if listed else 1)
        if wait_s is not None:
            online_s = min(online_s, wait_s * _SURE_PART)
        return Admission(
            max_backlog_s=online_s if lane is Lane.ONLINE else s.max_backlog_bulk_s,
            max_backlog_bytes=MAX_BACKLOG_BYTES,
            max_memory_percent=s.max_redis_memory_percent * (_LONG_LIVED_PART if listed else 1),
            vector_bytes=FLOAT32_BYTES * dimension + _ITEM_BYTES,
            owner_share=_OWNER_SHARE if self._several() else 0,
            key=key,
        )

    def limit(self, model: str) -> int:
        """The work that a query may find before it when it is taken, its own included, in estimated tokens."""
        return max(1, int(self._settings.max_backlog_s * self._rate(model)))

    def room(self, model: str, owner: str) -> KeyRoom:
        """What admission still lets `owner` bring to the online lane in one request that is as large as all it has."""
        mine, of_others, others = self._queued(model, Lane.ONLINE, owner)
        limit = self.limit(model)
        left = max(limit - of_others, limit // (others + 1)) - mine
        return KeyRoom(limit, max(0, left), (mine + min(of_others, others * mine)) / self._rate(model))

    def retry_after_s(self, task: Task, *, new: bool = False) -> int:
        """Seconds until the task should be done, 1 to 120: each other task gets as much as this one before, or less.

        `new`: it was stored after the last overview, which does not count it.
        """
        mine, of_others, others = self._queued(task.queue, task.lane, task.owner)
        overview = self.overviews.get(task.queue)
        tasks = overview.owner_tasks.get(task.lane, {}).get(task.owner, 0) if overview else 0
        before = min(mine, tasks * task.cost)
        own = before + task.cost if new else max(before, task.cost)
        seconds = (own + min(of_others, others * own)) / self._rate(task.queue)
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(seconds)))

    def _queued(self, model: str, lane: Lane, owner: str) -> tuple[int, int, int]:
        """Work of the owner, work of all others, and how many these are: they take turns by cost."""
        overview = self.overviews.get(model)
        if overview is None:
            return 0, 0, 0
        by_owner = overview.owner_cost.get(lane, {})
        mine = by_owner.get(owner, 0)
        return mine, max(0, overview.backlog_cost[lane] - mine), len(by_owner.keys() - {owner})

    def _rate(self, model: str) -> float:
        return ServedModel.from_overview(model, self.overviews.get(model)).rate

"""What workers serve, as the API knows it: names and aliases, queues and speeds.

The API learns of it by the last overview of the ledger, at most about a second old (`api.waiting.ledger_watch`).
"""

import math
import time
from collections.abc import Callable, Mapping

from tasks.errors import NotFound, RedisUnavailable
from tasks.item import FLOAT32_BYTES
from tasks.ledger.client import spread
from tasks.ledger.key_limits import KeyRoom
from tasks.ledger.overview import Account, Queue, find_queue
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.submit import MAX_RETRY_AFTER_S
from tasks.ledger.task import Admission, Lane, Task
from tasks.records.api_keys import Limits
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
        self.known: Mapping[str, Queue] = {}
        """By served name."""
        self.documents = Queue(DOCUMENTS)
        """The queue of work that needs no model. No model is found under its name."""
        self.redis_up = False
        self._lost = "The queue (Redis) has not answered yet."
        self.seen_at: float | None = None
        """When the ledger gave its last overview, in Unix seconds by this host's clock; None: not yet."""
        self._served: dict[str | None, Queue] = {}
        """Models that callers have named since the last overview, by the name that they used."""
        self._absent_since: dict[str, float] = {}
        """Models without a worker that beats, and when that was first seen since Redis answers."""

    def update(self, queues: Mapping[str, Queue]) -> None:
        """Takes in a new overview of the ledger."""
        self.known = {name: queue for name, queue in queues.items() if name != DOCUMENTS}
        before = self._absent_since if self.redis_up else {}  # while Redis was away, no worker could beat
        absent = self.known.keys() - self.live_workers().keys()
        now = self._clock()
        self._absent_since = {name: before.get(name, now) for name in absent}
        self.documents = queues.get(DOCUMENTS, self.documents)
        self._served = {}  # last: `served` takes it before it reads what is known
        self.seen_at = time.time()
        self.redis_up = True

    def lost(self, why: str) -> None:
        """Redis did not answer; the last overview stays. `why`: a sentence for callers."""
        self.redis_up = False
        self._lost = why

    def queues(self) -> list[str]:
        """Canonical names of all known models, the configured one first."""
        return [self.own_model, *(name for name in sorted(self.known) if name != self.own_model)]

    def names(self) -> list[str]:
        """All names of known models; those of the configured one first, aliases behind their canonical name."""
        return list(dict.fromkeys(name for queue in self.queues() for name in self.names_of(queue)))

    def names_of(self, queue: str) -> list[str]:
        """All names of one model, the canonical one first."""
        own = self._own_names if queue == self.own_model else ()
        model = self.queue(queue).model
        return list(dict.fromkeys((queue, *own, *(model.aliases if model else ()))))

    def queue(self, name: str) -> Queue:
        """The queue of this canonical name, or of the documents."""
        return self.documents if name == DOCUMENTS else self.known.get(name) or Queue(name)

    def all(self) -> list[Queue]:
        """Those of models that the ledger knows, and that of the documents."""
        return [*self.known.values(), self.documents]

    def served(self, name: str | None) -> Queue:
        """The queue of the model that a request names; without a name of the configured one.

        Raises:
            NotFound: nobody has ever served it here; with the names of those that are served.
            RedisUnavailable: Redis has not been reachable since the start, so nothing can be said.
        """
        kept = self._served  # before what is known: threads come here too, and `update` replaces both in between
        served = kept.get(name)
        if served is not None:
            return served
        try:
            served = find_queue(self.own_model if name is None else name, self._own_names, self.known)
        except NotFound:
            if self.seen_at is None:
                raise RedisUnavailable(self._lost, retry_after_s=spread(3)) from None
            raise
        kept[name] = served
        return served

    def storage_trouble(self) -> str:
        """What the first worker says whose storage is not as it should be; "" for nothing."""
        workers = (worker for queue in self.all() for worker in queue.workers if worker.storage_detail)
        return next((worker.storage_detail for worker in workers), "")

    def why_none(self, model: str = "") -> str:
        """What keeps workers from serving, as the beginning of a sentence; "" for nothing. "": of any model."""
        queues = [self.queue(model)] if model else list(self.known.values())
        refused = next((queue.refused for queue in queues if queue.refused), "")
        if refused:
            return f"A worker gets no work: {refused}"
        first = min((one for queue in queues for one in queue.loading), key=lambda one: one.since, default=None)
        if first is None:
            return ""
        return f"A worker loads {first.model} from {first.source}, for {max(0, time.time() - first.since):.0f} s now"

    def live_workers(self) -> dict[str, int]:
        """Number of workers that beat, by model; models without any are left out."""
        return {name: len(queue.workers) for name, queue in self.known.items() if queue.workers}

    def absent_s(self, model: str) -> float:
        """For how long the model has had no worker that beats, as far as this process has seen; 0 if it has one."""
        since = self._absent_since.get(model)
        return 0 if since is None else self._clock() - since

    def admission(
        self,
        served: Queue,
        lane: Lane,
        dimensions: int | None,
        *,
        listed: bool,
        wait_s: float | None = None,
        key: Limits | None = None,
    ) -> Admission:
        """The limits that SUBMIT checks for a task of this lane whose vectors are cut to `dimensions`.

        Args:
            served: its queue.
            lane: of the task.
            dimensions: None: those of the model.
            listed: nobody waits for it on an open connection, and its result lives long.
            wait_s: its caller waits so long. What would not be done by then is work for nobody.
            key: limits of its caller's key; None: it has none.
        """
        s = self._settings
        dimension = dimensions or (served.model.dimension if served.model else UNKNOWN_MODEL_DIMENSION)
        online_s = s.max_backlog_s * (_UNAWAITED_PART if listed else 1)
        if wait_s is not None:
            online_s = min(online_s, wait_s * _SURE_PART)
        return Admission(
            max_backlog_s=online_s if lane is Lane.ONLINE else s.max_backlog_bulk_s,
            max_memory_percent=self.memory_percent(listed=listed),
            vector_bytes=FLOAT32_BYTES * dimension + _ITEM_BYTES,
            owner_share=_OWNER_SHARE if self._several() else 0,
            tokens_per_minute=key.tokens_per_minute if key else None,
            queued_tokens=key.queued_tokens if key else None,
            open_jobs=key.open_jobs if key else None,
        )

    def memory_percent(self, *, listed: bool) -> float:
        """How full Redis may be: for tasks whose results live long (`listed`), or for queries."""
        return self._settings.max_redis_memory_percent * (_LONG_LIVED_PART if listed else 1)

    def limit(self, model: str) -> int:
        """The work that a query may find before it when it is taken, its own included, in estimated tokens."""
        return max(1, int(self._settings.max_backlog_s * self.queue(model).speed))

    def room(self, model: str) -> KeyRoom:
        """What admission surely lets a caller bring to the online lane: more, if the work there is that of others."""
        queued = self.queue(model).backlog_cost[Lane.ONLINE]
        limit = self.limit(model)
        return KeyRoom(limit, max(0, limit - queued), queued / self.queue(model).speed)

    def retry_after_s(self, task: Task, account: Account | None = None) -> int:
        """Seconds until the task should be done, 1 to 120, at the measured speed.

        `account`: of its owner; None: the task is the only one that it has.
        """
        queue = self.queue(task.queue)
        seconds = (cost_before(task, queue, account or Account({})) + task.cost) / queue.speed
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(seconds)))


_BULK_WAITS_FOR = 7
"""Beside one part of bulk work so many of online work are served (`claim.lua`)."""


def cost_before(task: Task, queue: Queue, account: Account) -> int:
    """Estimated tokens of others that fair turns let go before the end of a task.

    Each other task of its owner gets as much as this one at most, and each other owner as much as this owner. Bulk work
    goes beside online work, which has the larger part.
    """
    lane = task.lane
    tasks, mine = max(0, account.tasks(queue.name, lane) - 1), account.cost(queue.name, lane)
    of_owner = min(max(0, mine - task.cost), tasks * task.cost)
    others = max(0, queue.owners[lane] - 1)
    of_others = min(max(0, queue.backlog_cost[lane] - max(mine, task.cost)), others * (of_owner + task.cost))
    before = of_owner + of_others
    if lane is Lane.BULK:
        before += min(queue.backlog_cost[Lane.ONLINE], _BULK_WAITS_FOR * (before + task.cost))
    return before

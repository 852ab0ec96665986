"""What the web tier knows about models and queues: the last overview of the ledger, at most about a second old."""

import math
from collections.abc import Mapping

from tasks.errors import ModelNotFound, RedisUnavailable
from tasks.ledger import DOCUMENTS, Admission, Lane, ModelEntry, ModelOverview
from tasks.ledger.models import served_name
from tasks.ledger.operations import MAX_RETRY_AFTER_S
from worker_config.settings import Settings

_DEFAULT_RATE = Admission(max_backlog_s=0).default_rate
"""What SUBMIT assumes while no worker has ever reported a speed."""
UNKNOWN_MODEL_DIMENSION = 1024
"""Assumed of a model that no worker has loaded yet, to reserve room for its vectors."""
_FLOAT32_BYTES, _ITEM_BYTES = 4, 64
UNKNOWN_MODEL_MAX_TOKENS = 512
"""Assumed likewise; it only prices items."""


class Registry:
    """Models by served name. Outlives workers: a model that was ever served is known, and so is the configured one."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.own_model = settings.served_model_name
        self._own_names = settings.served_names
        self.overviews: Mapping[str, ModelOverview] = {}
        self.documents: ModelOverview | None = None
        """The queue of work that needs no model. No model is found under its name."""
        self.redis_up = False
        self._seen = False

    def update(self, overviews: Mapping[str, ModelOverview]) -> None:
        """Takes in what the ledger said just now."""
        self.overviews = {name: overview for name, overview in overviews.items() if name != DOCUMENTS}
        self.documents = overviews.get(DOCUMENTS, self.documents)
        self.redis_up = self._seen = True

    def lost(self) -> None:
        """Redis did not answer; the last overview stays."""
        self.redis_up = False

    def queues(self) -> list[str]:
        """Canonical names of all known models, the configured one first."""
        return [self.own_model, *(name for name in sorted(self.overviews) if name != self.own_model)]

    def names(self) -> list[str]:
        """All names of known models, aliases behind the canonical ones; those of the configured one first."""
        aliases = (alias for name in self.queues() if (entry := self.entry(name)) for alias in entry.aliases)
        return list(dict.fromkeys((*self._own_names, *self.queues(), *aliases)))

    def resolve(self, name: str | None) -> str:
        """The canonical name of what a request calls its model; without a name the configured one.

        Raises:
            ModelNotFound: nobody has ever served it here.
            RedisUnavailable: Redis has not been reachable since the start, so nothing can be said.
        """
        found = self.own_model if name is None else served_name(name, self._own_names, self.overviews)
        if found is not None:
            return found
        if not self._seen:
            raise RedisUnavailable("The queue (Redis) does not answer; try again shortly.", retry_after_s=2)
        raise ModelNotFound(f"There is no model {name!r} here. GET /v1/models lists those there are.", param="model")

    def entry(self, model: str) -> ModelEntry | None:
        """What a worker said of the model; None when none has loaded it yet."""
        overview = self.overviews.get(model)
        return overview.entry if overview else None

    def live_workers(self) -> dict[str, int]:
        """Number of workers that beat, by model; models without any are left out."""
        return {name: len(o.workers) for name, o in self.overviews.items() if o.workers}

    def max_tokens(self, model: str) -> int:
        """The most tokens the model reads of one text."""
        entry = self.entry(model)
        return entry.max_tokens if entry else UNKNOWN_MODEL_MAX_TOKENS

    def streams(self, model: str) -> int:
        """How many claims its live workers work on at a time."""
        overview = self.overviews.get(model)
        return sum(worker.streams for worker in overview.workers) if overview else 0

    def unit_cost(self, model: str) -> int:
        """Estimated tokens that one unit may hold: what one stream does in `unit_s`, within the configured limit."""
        fits = int(self._settings.unit_s * self._rate(model) / max(1, self.streams(model)))
        return max(1, min(self._settings.unit_max_tokens, fits))

    def admission(self, model: str, lane: Lane, dimensions: int | None) -> Admission:
        """The limits that SUBMIT checks for a task of this lane whose vectors are cut to `dimensions`."""
        s = self._settings
        entry = self.entry(model)
        dimension = dimensions or (entry.dimension if entry else UNKNOWN_MODEL_DIMENSION)
        return Admission(
            max_backlog_s=s.max_backlog_s if lane is Lane.ONLINE else s.max_backlog_bulk_s,
            max_backlog_bytes=s.max_backlog_bytes,
            max_memory_percent=s.max_redis_memory_percent,
            vector_bytes=_FLOAT32_BYTES * dimension + _ITEM_BYTES,
        )

    def room(self, model: str, lane: Lane) -> tuple[int, int, float]:
        """What admission lets wait in the lane, in estimated tokens.

        Returns:
            the limit, what is left of it, and the seconds until all of it is free again.
        """
        s = self._settings
        overview = self.overviews.get(model)
        queued = overview.backlog_cost[lane] if overview else 0
        rate = self._rate(model)
        limit = max(1, int((s.max_backlog_s if lane is Lane.ONLINE else s.max_backlog_bulk_s) * rate))
        return limit, max(0, limit - queued), queued / rate

    def retry_after_s(self, model: str, lane: Lane) -> int:
        """Seconds until what is queued in the lane should be done, 1 to 120."""
        overview = self.overviews.get(model)
        backlog = overview.backlog_cost[lane] if overview else 0
        return max(1, min(MAX_RETRY_AFTER_S, math.ceil(backlog / self._rate(model))))

    def _rate(self, model: str) -> float:
        overview = self.overviews.get(model)
        return (overview.rate if overview else None) or _DEFAULT_RATE

"""What this service is and has: models, workers, queues, Redis, and whether it is ready."""

import asyncio
import time
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeVar

from api.async_storage import AsyncStorage
from api.schemas.models import Model, ModelFacts, MoreFacts
from api.schemas.service import (
    DocumentsQueue,
    DocumentsWorker,
    LaneBacklog,
    LiveWorker,
    Loading,
    Ready,
    RedisChecks,
    RedisState,
    ServiceModel,
    ServiceState,
)
from api.served_models import ServedModels
from tasks.errors import EmbedqError, NotReady, Overloaded
from tasks.ledger.client import AsyncLedger
from tasks.ledger.heartbeat import Worker
from tasks.ledger.overview import Account, Queue, overview, read_account
from tasks.ledger.task import Lane
from tasks.records.api_keys import Key, Scope
from worker_config.settings import Settings

VERSION = "0.1.0"
_STARTED_AT = int(time.time())
W = TypeVar("W", bound=DocumentsWorker)


class ServiceInfo:
    """What the service tells of itself, from the last overview of the ledger, which is about a second old."""

    def __init__(self, ledger: AsyncLedger, models: ServedModels, storage: AsyncStorage, settings: Settings) -> None:
        self._ledger = ledger
        self._models = models
        self._storage = storage
        self._settings = settings
        self._looking: asyncio.Task[str] | None = None

    def models(self) -> list[Model]:
        """All models, once for each of their names, the configured one first."""
        return [self.model(name) for name in self._models.names()]

    def model(self, name: str) -> Model:
        """The model of this name. Raises `NotFound`, or `RedisUnavailable` before Redis has answered."""
        served = self._models.served(name)
        workers = self._models.live_workers().get(served.name, 0)
        return Model(
            id=name,
            created=served.model.created_at if served.model else _STARTED_AT,
            alias_of=None if name == served.name else served.name,
            workers=workers,
            ready=workers > 0,
            **MoreFacts.of(served.model),
        )

    async def ready(self) -> Ready:
        """How many workers serve which model. Raises `NotReady`, which names the part that is missing."""
        # Anybody may ask, and an overview is work for Redis: who asks meanwhile waits for the same one.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="overview")
        lost = await asyncio.shield(self._looking)
        if lost:
            raise NotReady(lost, param="redis", retry_after_s=2)
        workers = self._models.live_workers()
        if not workers:
            why = self._models.why_none() or "No worker with a loaded model is up"
            raise NotReady(f"{why}. Submitted tasks are kept and wait for one.", param="worker", retry_after_s=5)
        storage = await self._storage.trouble() or self._models.storage_trouble() or None
        return Ready(workers=workers, storage=storage)

    async def _look(self) -> str:
        """Why Redis does not answer, or "". Never raises: an error that many await would hold the requests of all."""
        try:
            await self._ledger.require_usable()
            self._models.update(await self._ledger.run(overview(self._models.own_model)))
        except Overloaded:
            pass  # the answer came and was not read in time: what was known a second ago holds
        except EmbedqError as error:
            self._models.lost(error.detail)
            return error.detail
        return ""

    async def redis_checks(self) -> RedisChecks:
        """What Redis says of itself now, judged. Raises `RedisUnavailable`."""
        facts = await self._ledger.try_out()
        return RedisChecks.model_validate({"checks": facts.checks(self._settings.redis_ack)})

    async def state(self, key: Key) -> ServiceState:
        """Models, workers and queues, as far as the key may see them. Raises `RedisUnavailable`."""
        account: Account | None = None
        if not key.may({Scope.OPERATE}):
            account = await self._ledger.run(read_account(key.owner))
        seen = _Seen(account)
        models, documents = self._models, self._models.documents
        return ServiceState(
            version=VERSION,
            started_at=_STARTED_AT,
            time=time.time(),
            redis=RedisState(
                up=models.redis_up,
                memory_percent=documents.redis.memory_percent,
                used_bytes=documents.redis.used_bytes,
                limit_bytes=documents.redis.limit_bytes,
                tasks_percent=round(models.memory_percent(listed=True)),
                queries_percent=round(models.memory_percent(listed=False)),
                seen_at=models.seen_at,
            ),
            models=[self._model_state(models.queue(name), seen) for name in models.queues()],
            documents=DocumentsQueue(
                workers=[seen.worker(DocumentsWorker, worker) for worker in documents.workers],
                tasks=sum(seen.tasks(documents, lane) for lane in Lane),
                absent_since=_absent_since(documents),
            ),
        )

    def _model_state(self, queue: Queue, seen: "_Seen") -> ServiceModel:
        return ServiceModel(
            id=queue.name,
            names=self._models.names_of(queue.name),
            **ModelFacts.of(queue.model),
            tokens_per_second=queue.rate,
            workers=[seen.worker(LiveWorker, worker) for worker in queue.workers],
            loading=[Loading(model=one.model, source=one.source, since=one.since) for one in queue.loading],
            absent_since=_absent_since(queue),
            lanes={lane.value: seen.lane(queue, lane) for lane in Lane},
            leases=queue.leases,
        )


def _absent_since(queue: Queue) -> float | None:
    return queue.absent_ms / 1000 if queue.absent_ms else None


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a caller may see. `account`: whose work; None: everybody's, and where workers run."""

    account: Account | None

    def worker(self, kind: type[W], worker: Worker) -> W:
        """A worker that beats."""
        shown = kind.model_validate(worker)
        if self.account is None:
            return shown
        hidden = sha256(worker.id.encode()).hexdigest()[:12]  # the id has the host and the pid
        return shown.model_copy(update={"id": hidden, "pid": None, "host": None, "rss_bytes": None})

    def tasks(self, queue: Queue, lane: Lane) -> int:
        """Open tasks of a lane."""
        return queue.backlog_tasks[lane] if self.account is None else self.account.tasks(queue.name, lane)

    def lane(self, queue: Queue, lane: Lane) -> LaneBacklog:
        """A lane of a model. How long all work takes is the load, which everybody may know."""
        of_all = queue.backlog_cost[lane]
        seconds = (of_all / queue.rate if queue.rate else None) if of_all else 0.0
        tokens = of_all if self.account is None else self.account.cost(queue.name, lane)
        oldest_s = queue.oldest_waiting_s.get(lane)
        return LaneBacklog(tasks=self.tasks(queue, lane), tokens=tokens, seconds=seconds, oldest_s=oldest_s)

"""Metrics for Prometheus: of one process, of its event loop, and of queues and workers."""

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, product

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from api.error_responses import AnsweredError, answered
from api.queue.history import RequestCounts
from api.queue.served_models import ServedModels
from api.request.memory_budget import OWNER, Budget
from api.server.overload import Door, StallProbe
from api.waiting.hub import Hub
from tasks.ledger import ANONYMOUS, DOCUMENTS, Lane, ModelOverview, State, Submission
from tasks.ledger.overview import TOOK_BOUNDS_S, ServedModel
from tasks.records.batches import BatchStatus
from tasks.records.ingestions import IngestionStatus
from worker_config.settings import Settings

_LATENCIES_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_STALLS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_REDIS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_RETRY_AFTER_S = (1, 2, 5, 10, 20, 30, 60, 120)
_OTHER_KEYS = "other"

_FRESH_S = 1.0

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """All series of one process, in a registry of its own so that two apps in one process do not mix.

    Args:
        process: which of several processes behind one port this is. Each scrape reaches one of them, so their series
            are told apart by a label; None: no label.
        keys: names of API keys that have usage series of their own now; those of all others are one. None: no such
            series.
    """

    def __init__(self, process: int | None = None, keys: Callable[[], Collection[str]] | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._process = process
        self.fresh_s = _FRESH_S
        self.recent = RequestCounts()
        """For the history of the last hour, which takes them."""
        self._stale_s, self._rendered = 0.0, b""
        self._registry = CollectorRegistry()
        self._shared = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "embedq_http_requests", "Requests served.", ["method", "route", "status"], registry=self._registry
        )
        self._latency = Histogram(
            "embedq_http_request_seconds",
            "Time to the last byte of the answer, waiting included; of event streams to the head.",
            ["route"],
            buckets=_LATENCIES_S,
            registry=self._registry,
        )
        self._tasks = Counter("embedq_submitted_tasks", "Tasks stored.", ["model", "lane"], registry=self._registry)
        self._items = Counter("embedq_submitted_items", "Texts in them.", ["model", "lane"], registry=self._registry)
        self._joined = Counter(
            "embedq_joined_requests", "Requests that found an earlier task.", ["model"], registry=self._registry
        )
        self._bells = Counter("embedq_bells", "Bell messages sent.", ["model"], registry=self._registry)
        self._lost_bells = Counter(
            "embedq_bell_failures", "Bell messages that could not be sent.", ["model"], registry=self._registry
        )
        self.stalled = self._seconds("embedq_loop_stall", "By how much a tick of the event loop came late.", _STALLS_S)
        """Takes the seconds of one stall."""
        overviews = "Time of the overview that is read from Redis once a second."
        self.redis_read = self._seconds("embedq_redis_read", overviews, _REDIS_S)
        """Takes the seconds of one overview."""
        self._errors = _Errors(self._registry)
        self._usage = None if keys is None else _Usage(keys, self._registry)

        # Finding the series of some labels costs more than counting in them. Methods and routes are few, models too.
        self._series = cache(
            lambda method, route, status: (
                self._requests.labels(method, route, str(status)),
                self._latency.labels(route),
            )
        )
        self._of_lane = cache(lambda model, lane: (self._tasks.labels(model, lane), self._items.labels(model, lane)))

    def served(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one request. Status 0: nothing was answered."""
        requests, latency = self._series(method, route, status)
        requests.inc()
        latency.observe(seconds)
        self.recent.served(method, route, status, seconds)

    def explained(self, scope: Scope, route: str, status: int) -> None:
        """Counts the error that answered the request of `scope`, if one did, and whose request it was."""
        if error := answered(scope):
            self._errors.answered(route, error)
        if self._usage is not None and OWNER in scope:
            self._usage.requested(scope[OWNER], status)

    def refused(self, submission: Submission, code: str) -> None:
        """Counts a task that was not stored."""
        self._errors.refused(submission, code)

    def submitted(self, submission: Submission, *, joined: bool) -> None:
        """Counts a task that the ledger took, or a request that joined an earlier one."""
        if joined:
            self._joined.labels(submission.queue).inc()
            return
        tasks, items = self._of_lane(submission.queue, submission.lane.value)
        tasks.inc()
        items.inc(sum(unit.items for unit in submission.units))
        if self._usage is not None:
            self._usage.submitted(submission)

    def count_bell(self, model: str, sent: bool) -> None:
        """Counts one bell."""
        (self._bells if sent else self._lost_bells).labels(model).inc()

    def _seconds(self, name: str, meaning: str, buckets: Sequence[float]) -> Callable[[float], None]:
        return Histogram(f"{name}_seconds", meaning, buckets=buckets, registry=self._registry).observe

    def add(self, collector: Collector) -> None:
        """Adds series of this process that are computed when they are read."""
        self._registry.register(collector)

    def add_shared(self, collector: Collector) -> None:
        """Adds series that are the same whichever process is asked."""
        self._shared.register(collector)

    def render(self) -> bytes:
        """All series in Prometheus's text format, `fresh_s` old at most: they take milliseconds and need no key."""
        now_s = time.monotonic()
        if now_s >= self._stale_s:
            self._rendered = generate_latest(self) + generate_latest(self._shared)
            self._stale_s = now_s + self.fresh_s
        return self._rendered

    def collect(self) -> Iterator[Metric]:
        """The series of this process, for `generate_latest`."""
        for metric in self._registry.collect():
            if self._process is not None:
                label = {"process": str(self._process)}
                metric.samples = [sample._replace(labels={**sample.labels, **label}) for sample in metric.samples]
            yield metric


class _Errors:
    """Which errors callers get, and when they are told to come back."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._answers = Counter("embedq_http_errors", "Error answers.", ["route", "code"], registry=registry)
        self._retry_after = Histogram(
            "embedq_retry_after_seconds",
            "Seconds after which refused callers were told to come back.",
            ["code"],
            buckets=_RETRY_AFTER_S,
            registry=registry,
        )
        self._refused = Counter(
            "embedq_refused_tasks", "Tasks that were not stored.", ["model", "lane", "code"], registry=registry
        )

    def answered(self, route: str, error: AnsweredError) -> None:
        """Counts one error answer."""
        self._answers.labels(route, error.code).inc()
        if error.retry_after_s is not None:
            self._retry_after.labels(error.code).observe(error.retry_after_s)

    def refused(self, submission: Submission, code: str) -> None:
        """Counts a task that was not stored."""
        self._refused.labels(submission.queue, submission.lane.value, code).inc()


class _Usage:
    """What the callers with each API key use. Keys without series of their own share one, whatever their number."""

    def __init__(self, keys: Callable[[], Collection[str]], registry: CollectorRegistry) -> None:
        self._keys = keys
        self._requests = Counter("embedq_key_requests", "Requests.", ["key", "status"], registry=registry)
        self._series = cache(lambda key, status: self._requests.labels(key, str(status)))
        self._items = Counter("embedq_key_submitted_items", "Texts stored.", ["key"], registry=registry)
        self._tokens = Counter("embedq_key_submitted_tokens", "Their estimated tokens.", ["key"], registry=registry)

    def requested(self, owner: str, status: int) -> None:
        """Counts one request."""
        self._series(self._key(owner), status).inc()

    def submitted(self, submission: Submission) -> None:
        """Counts a task that the ledger took."""
        key = self._key(submission.owner)
        self._items.labels(key).inc(sum(unit.items for unit in submission.units))
        self._tokens.labels(key).inc(sum(unit.cost for unit in submission.units))

    def _key(self, owner: str) -> str:
        return owner if owner == ANONYMOUS or owner in self._keys() else _OTHER_KEYS


class ProcessMetrics(Collector):
    """The state of one web tier process, computed when it is read.

    Args:
        held: bytes of large bodies, by what they are ("requests", "answers").
    """

    def __init__(
        self, registry: ServedModels, hub: Hub, stall: StallProbe, door: Door, held: Mapping[str, Budget]
    ) -> None:
        self._registry = registry
        self._hub = hub
        self._stall = stall
        self._door = door
        self._held = held

    def describe(self) -> list[Metric]:
        """Nothing: otherwise registration would read the series, and the stall window with them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series of this collector."""
        yield _gauge("embedq_redis_up", "1 while Redis answers.", float(self._registry.redis_up))
        yield _gauge("embedq_subscribed", "1 while task changes are heard.", float(self._hub.subscribed.is_set()))
        yield _gauge("embedq_waiting_requests", "Requests that wait for a task.", self._hub.waiting_requests)
        yield _gauge("embedq_submissions_under_way", "On their way to Redis and back.", self._door.under_way)
        yield _gauge("embedq_submissions_under_way_limit", "With more, callers are refused.", self._door.most)
        held = GaugeMetricFamily("embedq_held_bytes", "Of large bodies under way.", labels=["what"])
        limit = GaugeMetricFamily("embedq_held_limit_bytes", "With more, callers are refused.", labels=["what"])
        for what, budget in self._held.items():
            held.add_metric([what], budget.held_bytes)
            limit.add_metric([what], budget.limit_bytes)
        yield from (held, limit)
        yield _gauge("embedq_loop_stall_max_seconds", "Longest stall since the start.", self._stall.longest_s)
        yield _gauge("embedq_loop_stall_recent_seconds", "Longest stall since the last scrape.", self._stall.take_s())


class QueueMetrics(Collector):
    """Queues and workers as the watchdog saw them last, the same whichever process is asked.

    Without state of their own, so that a model or worker that has gone leaves no series behind.
    """

    def __init__(self, registry: ServedModels, settings: Settings) -> None:
        self._registry = registry
        self._settings = settings

    def describe(self) -> list[Metric]:
        """Nothing: they differ from one reading to the next."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series of this collector."""
        overviews = list(self._registry.overviews.values())
        if self._registry.documents is not None:
            overviews.append(self._registry.documents)
        yield from _queues(overviews)
        yield from _waiting(overviews, self._settings)
        yield from _ended(overviews)
        yield from _redis(overviews, self._settings)
        yield from _workers(overviews)
        yield from _totals(overviews)
        yield from _documents(self._registry.documents)


_OF_ONE_WORKER: Sequence[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str]] = (
    (GaugeMetricFamily, "embedq_worker_rss_bytes", "Memory of a model process."),
    (CounterMetricFamily, "embedq_worker_forward_passes", "Forward passes of a model process."),
    (CounterMetricFamily, "embedq_worker_items", "Texts it encoded."),
    (CounterMetricFamily, "embedq_worker_dropped_bells", "Messages of the broker that were no bells."),
)
"""Each is named after a field of `WorkerEntry`."""


def _queues(overviews: list[ModelOverview]) -> Iterator[Metric]:
    cost = GaugeMetricFamily("embedq_backlog_tokens", "Estimated tokens not done yet.", labels=["model", "lane"])
    tasks = GaugeMetricFamily("embedq_backlog_tasks", "Open tasks.", labels=["model", "lane"])
    size = GaugeMetricFamily("embedq_backlog_bytes", "Payload bytes of open tasks.", labels=["model"])
    leases = GaugeMetricFamily("embedq_leases", "Claims that are being worked on.", labels=["model"])
    for o in overviews:
        for lane, tokens in o.backlog_cost.items():
            cost.add_metric([o.queue, lane.value], tokens)
            tasks.add_metric([o.queue, lane.value], o.backlog_tasks[lane])
        size.add_metric([o.queue], o.backlog_bytes)
        leases.add_metric([o.queue], o.leases)
    yield from (cost, tasks, size, leases)


def _waiting(overviews: list[ModelOverview], settings: Settings) -> Iterator[Metric]:
    work = GaugeMetricFamily("embedq_backlog_seconds", "Work not done yet, at this speed.", labels=["model", "lane"])
    limit = GaugeMetricFamily("embedq_backlog_limit_seconds", "With more, callers are refused.", labels=["lane"])
    age = GaugeMetricFamily("embedq_oldest_waiting_seconds", "Age of what is next in line.", labels=["model", "lane"])
    for o in overviews:
        if o.queue != DOCUMENTS:  # its work has no speed
            rate = ServedModel.from_overview(o.queue, o).rate
            for lane, tokens in o.backlog_cost.items():
                work.add_metric([o.queue, lane.value], tokens / rate)
        for lane in Lane:
            age.add_metric([o.queue, lane.value], o.oldest_waiting_s.get(lane, 0))
    limit.add_metric([Lane.ONLINE.value], settings.max_backlog_s)
    limit.add_metric([Lane.BULK.value], settings.max_backlog_bulk_s)
    yield from (work, limit, age)


_OF_ENDED_TASKS = ["model", "lane", "state"]


def _ended(overviews: list[ModelOverview]) -> Iterator[Metric]:
    took = HistogramMetricFamily("embedq_task_seconds", "From acceptance to completion.", labels=["model", "lane"])
    tasks = CounterMetricFamily("embedq_ended_tasks", "By the state in which they ended.", labels=_OF_ENDED_TASKS)
    items = CounterMetricFamily("embedq_ended_items", "Texts that were done.", labels=["model", "lane", "outcome"])
    bounds = [*map(floatToGoString, (*TOOK_BOUNDS_S, math.inf))]
    for o in overviews:
        for lane, completed in o.took.items():
            buckets = list(zip(bounds, accumulate(completed.counts), strict=True))
            took.add_metric([o.queue, lane.value], buckets, completed.sum_s)
            tasks.add_metric([o.queue, lane.value, State.COMPLETED.value], sum(completed.counts))
        for lane, state in product(Lane, (State.FAILED, State.CANCELLED, State.EXPIRED)):
            tasks.add_metric([o.queue, lane.value, state.value], o.ended.get(f"ended_{lane}_{state}", 0))
        for lane, outcome in product(Lane, ("completed", "failed")):
            items.add_metric([o.queue, lane.value, outcome], o.ended.get(f"items_{lane}_{outcome}", 0))
    yield from (took, tasks, items)


_OF_REDIS = (
    ("embedq_redis_memory_percent", "Redis memory in use, of its limit.", "memory_percent"),
    ("embedq_redis_used_bytes", "Redis memory in use.", "used_bytes"),
    ("embedq_redis_limit_bytes", "Its limit.", "limit_bytes"),
    ("embedq_redis_reserved_bytes", "Of vectors that open tasks may still need.", "reserved_bytes"),
    ("embedq_open_batches", "Batches that have not ended.", "open_batches"),
    ("embedq_open_ingestions", "Ingestions that have not ended.", "open_ingestions"),
)
"""Each with its field of `RedisUse`."""


def _redis(overviews: list[ModelOverview], settings: Settings) -> Iterator[Metric]:
    use = overviews[0].redis if overviews else None
    for name, meaning, field in _OF_REDIS:
        yield GaugeMetricFamily(name, meaning, value=None if use is None else getattr(use, field))
    percent = settings.max_redis_memory_percent
    yield _gauge("embedq_redis_memory_limit_percent", "With more, callers are refused.", percent)


_ENDS = (
    ("embedq_ended_batches", "batches", [status.value for status in BatchStatus if status.terminal]),
    ("embedq_ended_ingestions", "ingestions", [status.value for status in IngestionStatus if status.terminal]),
)


def _documents(documents: ModelOverview | None) -> Iterator[Metric]:
    totals = documents.ended if documents else {}
    for name, kind, statuses in _ENDS:
        family = CounterMetricFamily(name, "By the status in which they ended.", labels=["status"])
        for status in statuses:
            family.add_metric([status], totals.get(f"{kind}_{status}", 0))
        yield family
    outcomes = CounterMetricFamily("embedq_ingested_documents", "Documents that were done.", labels=["outcome"])
    for outcome in ("loaded", "unchanged", "failed"):
        outcomes.add_metric([outcome], totals.get(f"ingested_{outcome}", 0))
    yield outcomes
    chunks = totals.get("ingested_chunks_embedded", 0)
    yield CounterMetricFamily("embedq_ingested_chunks", "Chunks of documents that got their vector.", value=chunks)
    setbacks = CounterMetricFamily(
        "embedq_ingestion_setbacks", "Jobs that found something away.", labels=["waiting_for"]
    )
    for name in sorted(name for name in totals if name.startswith("setbacks_")):
        setbacks.add_metric([name.removeprefix("setbacks_")], totals[name])
    yield setbacks


def _workers(overviews: list[ModelOverview]) -> Iterator[Metric]:
    live = GaugeMetricFamily("embedq_workers", "Workers with a loaded model that beat.", labels=["model"])
    rate = GaugeMetricFamily("embedq_tokens_per_second", "Speed of all live workers, or last known.", labels=["model"])
    for o in overviews:
        live.add_metric([o.queue], len(o.workers))
        if o.rate is not None:
            rate.add_metric([o.queue], o.rate)
    yield from (live, rate)
    for kind, name, meaning in _OF_ONE_WORKER:
        family = kind(name, meaning, labels=["model", "worker"])
        field = name.removeprefix("embedq_worker_")
        for o in overviews:
            for worker in o.workers:
                family.add_metric([o.queue, worker.id], getattr(worker, field))
        yield family


_FROM_ZERO = "lost_leases"
"""The counter of the ledger that is shown before it counts: an alert must see the first one."""


def _totals(overviews: list[ModelOverview]) -> Iterator[Metric]:
    for name in sorted({_FROM_ZERO, *(name for o in overviews for name in o.counters)}):
        family = CounterMetricFamily(f"embedq_ledger_{name}", "Total since the data began.", labels=["model"])
        for o in overviews:
            family.add_metric([o.queue], o.counters.get(name, 0))
        yield family


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)

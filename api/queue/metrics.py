"""Metrics for Prometheus: of one process, of its event loop, and of queues and workers."""

import time
from collections.abc import Iterator, Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from api.queue.served_models import ServedModels
from api.server.overload import StallProbe
from api.waiting.hub import Hub
from tasks.ledger import ModelOverview, Submission

_LATENCIES_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_STALLS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)

_FRESH_S = 1.0

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """All series of one process, in a registry of its own so that two apps in one process do not mix.

    Args:
        process: which of several processes behind one port this is. Each scrape reaches one of them, so their series
            are told apart by a label; None: no label.
    """

    def __init__(self, process: int | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._process = process
        self.fresh_s = _FRESH_S
        self._stale_s = 0.0
        self._rendered = b""
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
        stalls = Histogram(
            "embedq_loop_stall_seconds",
            "By how much a tick of the event loop came late.",
            buckets=_STALLS_S,
            registry=self._registry,
        )
        self.stalled = stalls.observe
        """Takes the seconds of one stall."""

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

    def submitted(self, submission: Submission, *, joined: bool) -> None:
        """Counts a task that the ledger took, or a request that joined an earlier one."""
        if joined:
            self._joined.labels(submission.queue).inc()
            return
        tasks, items = self._of_lane(submission.queue, submission.lane.value)
        tasks.inc()
        items.inc(sum(unit.items for unit in submission.units))

    def count_bell(self, model: str, sent: bool) -> None:
        """Counts one bell."""
        (self._bells if sent else self._lost_bells).labels(model).inc()

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


class ProcessMetrics(Collector):
    """The state of one web tier process, computed when it is read."""

    def __init__(self, registry: ServedModels, hub: Hub, stall: StallProbe) -> None:
        self._registry = registry
        self._hub = hub
        self._stall = stall

    def describe(self) -> list[Metric]:
        """Nothing: otherwise registration would read the series, and the stall window with them."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series of this collector."""
        yield _gauge("embedq_redis_up", "1 while Redis answers.", float(self._registry.redis_up))
        yield _gauge("embedq_subscribed", "1 while task changes are heard.", float(self._hub.subscribed.is_set()))
        yield _gauge("embedq_waiting_requests", "Requests that wait for a task.", self._hub.waiting_requests)
        yield _gauge("embedq_loop_stall_max_seconds", "Longest stall since the start.", self._stall.longest_s)
        yield _gauge("embedq_loop_stall_recent_seconds", "Longest stall since the last scrape.", self._stall.take_s())


class QueueMetrics(Collector):
    """Queues and workers as the watchdog saw them last, the same whichever process is asked.

    Without state of their own, so that a model or worker that has gone leaves no series behind.
    """

    def __init__(self, registry: ServedModels) -> None:
        self._registry = registry

    def describe(self) -> list[Metric]:
        """Nothing: they differ from one reading to the next."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All series of this collector."""
        overviews = list(self._registry.overviews.values())
        if self._registry.documents is not None:
            overviews.append(self._registry.documents)
        yield from _queues(overviews)
        yield from _workers(overviews)
        yield from _totals(overviews)


_OF_ONE_WORKER: Sequence[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str]] = (
    (GaugeMetricFamily, "embedq_worker_rss_bytes", "Memory of a model process."),
    (CounterMetricFamily, "embedq_worker_forward_passes", "Forward passes of a model process."),
    (CounterMetricFamily, "embedq_worker_items", "Texts it encoded."),
    (CounterMetricFamily, "embedq_worker_cache_hits", "Texts whose vector it had kept."),
    (CounterMetricFamily, "embedq_worker_cache_misses", "Texts whose vector it had not."),
    (GaugeMetricFamily, "embedq_worker_cache_bytes", "Memory of the vectors it keeps."),
)
"""Each is named after a field of `WorkerEntry`."""


def _queues(overviews: list[ModelOverview]) -> Iterator[Metric]:
    cost = GaugeMetricFamily("embedq_backlog_tokens", "Estimated tokens not done yet.", labels=["model", "lane"])
    tasks = GaugeMetricFamily("embedq_backlog_tasks", "Open tasks.", labels=["model", "lane"])
    size = GaugeMetricFamily("embedq_backlog_bytes", "Payload bytes of open tasks.", labels=["model"])
    leases = GaugeMetricFamily("embedq_leases", "Claims that are being worked on.", labels=["model"])
    memory = GaugeMetricFamily("embedq_redis_memory_percent", "Redis memory in use, of its limit.")
    for o in overviews:
        for lane, tokens in o.backlog_cost.items():
            cost.add_metric([o.queue, lane.value], tokens)
            tasks.add_metric([o.queue, lane.value], o.backlog_tasks[lane])
        size.add_metric([o.queue], o.backlog_bytes)
        leases.add_metric([o.queue], o.leases)
    for o in overviews[:1]:
        memory.add_metric([], o.memory_percent)
    yield from (cost, tasks, size, leases, memory)


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


def _totals(overviews: list[ModelOverview]) -> Iterator[Metric]:
    for name in sorted({name for o in overviews for name in o.counters}):
        family = CounterMetricFamily(f"embedq_ledger_{name}", "Total since the data began.", labels=["model"])
        for o in overviews:
            family.add_metric([o.queue], o.counters.get(name, 0))
        yield family


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)

"""Metrics of queues, workers and the event loop, computed when they are read from what the watchdog saw last."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.hub import Hub
from api.registry import Registry
from api.stall import StallProbe
from tasks.ledger import ModelOverview


class ProcessMetrics(Collector):
    """The state of one web tier process."""

    def __init__(self, registry: Registry, hub: Hub, stall: StallProbe) -> None:
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
    """Queues and workers, the same whichever process is asked.

    Without state of their own, so that a model or worker that has gone leaves no series behind.
    """

    def __init__(self, registry: Registry) -> None:
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
    rss = GaugeMetricFamily("embedq_worker_rss_bytes", "Memory of a model process.", labels=["model", "worker"])
    passes = CounterMetricFamily(
        "embedq_worker_forward_passes", "Forward passes of a model process.", labels=["model", "worker"]
    )
    items = CounterMetricFamily("embedq_worker_items", "Texts it encoded.", labels=["model", "worker"])
    for o in overviews:
        live.add_metric([o.queue], len(o.workers))
        if o.rate is not None:
            rate.add_metric([o.queue], o.rate)
        for worker in o.workers:
            rss.add_metric([o.queue, worker.id], worker.rss_bytes)
            passes.add_metric([o.queue, worker.id], worker.forward_passes)
            items.add_metric([o.queue, worker.id], worker.items)
    yield from (live, rate, rss, passes, items)
    yield from _caches(overviews)


def _caches(overviews: list[ModelOverview]) -> Iterator[Metric]:
    labels = ["model", "worker"]
    hits = CounterMetricFamily("embedq_worker_cache_hits", "Texts whose vector it had kept.", labels=labels)
    misses = CounterMetricFamily("embedq_worker_cache_misses", "Texts whose vector it had not.", labels=labels)
    size = GaugeMetricFamily("embedq_worker_cache_bytes", "Memory of the vectors it keeps.", labels=labels)
    for o in overviews:
        for worker in o.workers:
            hits.add_metric([o.queue, worker.id], worker.cache_hits)
            misses.add_metric([o.queue, worker.id], worker.cache_misses)
            size.add_metric([o.queue, worker.id], worker.cache_bytes)
    yield from (hits, misses, size)


def _totals(overviews: list[ModelOverview]) -> Iterator[Metric]:
    for name in sorted({name for o in overviews for name in o.counters}):
        family = CounterMetricFamily(f"embedq_ledger_{name}", "Total since the data began.", labels=["model"])
        for o in overviews:
            family.add_metric([o.queue], o.counters.get(name, 0))
        yield family


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)

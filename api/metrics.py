"""Metrics of this process. Those about queues and workers are in `api.queue_metrics`."""

import time
from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tasks.ledger import Submission

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
            self._joined.labels(submission.model).inc()
            return
        tasks, items = self._of_lane(submission.model, submission.lane.value)
        tasks.inc()
        items.inc(sum(unit.items for unit in submission.units))

    def rang(self, model: str, sent: bool) -> None:
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

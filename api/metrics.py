"""Metrics for Prometheus: of one process, of its event loop, and of queues and workers."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, chain, product
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from api.error_responses import answered
from api.load_limits import InFlight, Shared
from api.loop_stall import StallProbe
from api.served_models import ServedModels
from api.waiting.subscription import Subscription
from tasks.ledger.overview import TOOK_BOUNDS_S, Queue
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane, NewTask, State
from tasks.records.batches import BatchStatus
from tasks.records.ingestions import IngestionStatus
from worker_config.settings import Settings

_LATENCIES_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_STALLS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_REDIS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
_RETRY_AFTER_S = (1, 2, 5, 10, 20, 30, 60, 120)

_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Metrics(Collector):
    """All series of one process, in a registry of its own so that two apps in one process do not mix.

    Args:
        process: which of several processes behind one port this is. Each scrape reaches one of them, so their series
            are told apart by a label; None: no label.
    """

    def __init__(self, process: int | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._process = process
        self.fresh_s = 1.0
        self._stale_s, self._rendered = 0.0, b""
        self._registry = CollectorRegistry()
        self._own, self._shared = list[Callable[[], Iterator[Metric]]](), list[Callable[[], Iterator[Metric]]]()
        ProcessCollector(registry=self._registry)
        counter, histogram = partial(Counter, registry=self._registry), partial(Histogram, registry=self._registry)
        self._requests = counter("embedq_http_requests", "Requests served.", ["method", "route", "status"])
        took = "Time to the last byte of the answer, waiting included."
        self._latency = histogram("embedq_http_request_seconds", took, ["route"], buckets=_LATENCIES_S)
        self._tasks = counter("embedq_submitted_tasks", "Tasks stored.", ["model", "lane"])
        self._items = counter("embedq_submitted_items", "Texts in them.", ["model", "lane"])
        self._joined = counter("embedq_joined_requests", "Requests that found an earlier task.", ["model"])
        self._refused = counter("embedq_refused_tasks", "Tasks that were not stored.", ["model", "lane", "code"])
        self._bells = counter("embedq_bells", "Bell messages sent.", ["model"])
        self._lost_bells = counter("embedq_bell_failures", "Bell messages that could not be sent.", ["model"])
        self._errors = counter("embedq_http_errors", "Error answers.", ["route", "code"])
        told = "Seconds after which refused callers were told to come back."
        self._retry_after = histogram("embedq_retry_after_seconds", told, ["code"], buckets=_RETRY_AFTER_S)
        late = "By how much a tick of the event loop came late."
        self.stalled = histogram("embedq_loop_stall_seconds", late, buckets=_STALLS_S).observe
        """Takes the seconds of one stall."""
        overviews = "Time of the overview that is read from Redis once a second."
        self.redis_read = histogram("embedq_redis_read_seconds", overviews, buckets=_REDIS_S).observe
        """Takes the seconds of one overview."""
        # Finding the series of some labels costs more than counting in them. Methods and routes are few, models too.
        self._of_request = cache(
            lambda method, route, status: (
                self._requests.labels(method, route, str(status)),
                self._latency.labels(route),
            )
        )
        self._of_lane = cache(lambda model, lane: (self._tasks.labels(model, lane), self._items.labels(model, lane)))

    def served(self, scope: Scope, route: str, status: int, seconds: float) -> None:
        """Counts one request, and the error that answered it if one did. Status 0: nothing was answered."""
        method = scope["method"] if scope["method"] in _METHODS else "other"  # a caller may send any word
        requests, latency = self._of_request(method, route, status)
        requests.inc()
        latency.observe(seconds)
        if error := answered(scope):
            code, retry_after_s = error
            self._errors.labels(route, code).inc()
            if retry_after_s is not None:
                self._retry_after.labels(code).observe(retry_after_s)

    def refused(self, submission: NewTask, code: str) -> None:
        """Counts a task that was not stored."""
        self._refused.labels(submission.queue, submission.lane.value, code).inc()

    def submitted(self, submission: NewTask, *, joined: bool) -> None:
        """Counts a task that the ledger took, or a request that joined an earlier one."""
        if joined:
            self._joined.labels(submission.queue).inc()
            return
        tasks, items = self._of_lane(submission.queue, submission.lane.value)
        tasks.inc()
        items.inc(sum(piece.items for piece in submission.pieces))

    def count_bell(self, model: str, sent: bool) -> None:
        """Counts one bell."""
        (self._bells if sent else self._lost_bells).labels(model).inc()

    def add(self, rows: Callable[[], Iterator[Metric]], *, shared: bool = False) -> None:
        """Adds series that are computed when they are read, so that a model or worker that has gone leaves none behind.

        `shared`: the same whichever process is asked.
        """
        (self._shared if shared else self._own).append(rows)

    def render(self) -> bytes:
        """All series in Prometheus's text format, `fresh_s` old at most: they take milliseconds and need no key."""
        now_s = time.monotonic()
        if now_s >= self._stale_s:
            self._rendered = generate_latest(self)
            self._stale_s = now_s + self.fresh_s
        return self._rendered

    def collect(self) -> Iterator[Metric]:
        """All series, for `generate_latest`."""
        for metric in chain(self._registry.collect(), *(rows() for rows in self._own)):
            if self._process is not None:
                label = {"process": str(self._process)}
                metric.samples = [sample._replace(labels={**sample.labels, **label}) for sample in metric.samples]
            yield metric
        for rows in self._shared:
            yield from rows()


Values: TypeAlias = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and the number; None: there is none."""


def _gauge(name: str, meaning: str, labels: Sequence[str], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(name, meaning, labels=labels), values)


def _total(name: str, meaning: str, labels: Sequence[str], values: Values) -> Metric:
    """Of what only grows; `name` is without `_total`."""
    return _filled(CounterMetricFamily(name, meaning, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    for labels, number in values:
        if number is not None:
            family.add_metric(labels, number)
    return family


_REFUSED_ABOVE = "With more, callers are refused."


def process_rows(
    models: ServedModels,
    subscription: Subscription,
    stall: StallProbe,
    in_flight: InFlight,
    held: Mapping[str, Shared],
) -> Iterator[Metric]:
    """The state of one web tier process. `held`: bytes of large bodies, by what they are ("requests", "answers")."""
    for name, meaning, number in (
        ("embedq_redis_up", "1 while Redis answers.", models.redis_up),
        ("embedq_subscribed", "1 while ends of tasks are heard.", subscription.subscribed.is_set()),
        ("embedq_waiting_requests", "Requests that wait for a task.", subscription.waiting_requests),
        ("embedq_submissions_under_way", "On their way to Redis and back.", in_flight.number),
        ("embedq_submissions_under_way_limit", _REFUSED_ABOVE, in_flight.most),
        ("embedq_loop_stall_max_seconds", "Longest stall since the start.", stall.longest_s),
        ("embedq_loop_stall_recent_seconds", "Longest stall since the last scrape.", stall.take_s()),
    ):
        yield _gauge(name, meaning, (), [((), number)])
    sizes = [([what], budget.number) for what, budget in held.items()]
    limits = [([what], budget.most) for what, budget in held.items()]
    yield _gauge("embedq_held_bytes", "Of large bodies under way.", ["what"], sizes)
    yield _gauge("embedq_held_limit_bytes", _REFUSED_ABOVE, ["what"], limits)


def _seconds(queue: Queue, lane: Lane) -> float | None:
    return None if queue.name == DOCUMENTS else queue.backlog_cost[lane] / queue.speed  # jobs have no speed


_BY_LANE = ("model", "lane")
_OF_LANE: Sequence[tuple[str, str, Callable[[Queue, Lane], float | None]]] = (
    ("embedq_backlog_tokens", "Estimated tokens not done yet.", lambda o, lane: o.backlog_cost[lane]),
    ("embedq_backlog_tasks", "Open tasks.", lambda o, lane: o.backlog_tasks[lane]),
    ("embedq_backlog_seconds", "Work not done yet, at this speed.", _seconds),
    ("embedq_oldest_waiting_seconds", "Age of what is next in line.", lambda o, lane: o.oldest_waiting_s.get(lane, 0)),
)
_OF_QUEUE: Sequence[tuple[str, str, Callable[[Queue], float | None]]] = (
    ("embedq_backlog_bytes", "Payload bytes of open tasks.", lambda o: o.backlog_bytes),
    ("embedq_leases", "Claims that are being worked on.", lambda o: o.leases),
    ("embedq_workers", "Workers with a loaded model that beat.", lambda o: len(o.workers)),
    ("embedq_tokens_per_second", "Speed of all live workers, or last known.", lambda o: o.rate),
)
_OF_REDIS = (
    ("embedq_redis_memory_percent", "Redis memory in use, of its limit.", "memory_percent"),
    ("embedq_redis_used_bytes", "Redis memory in use.", "used_bytes"),
    ("embedq_redis_limit_bytes", "Its limit.", "limit_bytes"),
    ("embedq_redis_reserved_bytes", "Of vectors that open tasks may still need.", "reserved_bytes"),
    ("embedq_open_batches", "Batches that have not ended.", "open_batches"),
    ("embedq_open_ingestions", "Ingestions that have not ended.", "open_ingestions"),
)
"""Each with its field of `RedisUse`."""
_OF_WORKER = (
    ("rss_bytes", "Memory of a model process.", _gauge),
    ("forward_passes", "Forward passes of a model process.", _total),
    ("items", "Texts it encoded.", _total),
    ("dropped_bells", "Messages of the broker that were no bells.", _total),
)
"""Fields of `Worker`."""


def queue_rows(models: ServedModels, settings: Settings) -> Iterator[Metric]:
    """Queues and workers as they were seen last, the same whichever process is asked."""
    queues = models.all()
    lanes = [(o, lane, [o.name, lane.value]) for o, lane in product(queues, Lane)]
    for name, meaning, of_lane in _OF_LANE:
        yield _gauge(name, meaning, _BY_LANE, [(key, of_lane(o, lane)) for o, lane, key in lanes])
    for name, meaning, of_queue in _OF_QUEUE:
        yield _gauge(name, meaning, ["model"], [([o.name], of_queue(o)) for o in queues])
    limits = [([Lane.ONLINE.value], settings.max_backlog_s), ([Lane.BULK.value], settings.max_backlog_bulk_s)]
    yield _gauge("embedq_backlog_limit_seconds", _REFUSED_ABOVE, ["lane"], limits)
    percent = settings.max_redis_memory_percent
    yield _gauge("embedq_redis_memory_limit_percent", _REFUSED_ABOVE, (), [((), percent)])
    use = queues[0].redis if models.seen_at else None
    for name, meaning, field in _OF_REDIS:
        yield _gauge(name, meaning, (), [((), getattr(use, field, None))])
    workers = [(worker, [o.name, worker.id]) for o in queues for worker in o.workers]
    for field, meaning, kind in _OF_WORKER:
        values = [(key, getattr(worker, field)) for worker, key in workers]
        yield kind(f"embedq_worker_{field}", meaning, ["model", "worker"], values)
    yield from _ended(queues)
    yield from _documents(models.documents)


_NAMED = ("ended_", "items_", "took_", "batches_", "ingestions_", "ingested_", "setbacks_")
"""Counters of the ledger that have series with names of their own."""
_FROM_ZERO = "lost_leases"
"""The counter of the ledger that is shown before it counts: an alert must see the first one."""


def _ended(queues: Sequence[Queue]) -> Iterator[Metric]:
    took = HistogramMetricFamily("embedq_task_seconds", "From acceptance to completion.", labels=_BY_LANE)
    bounds = [*map(floatToGoString, (*TOOK_BOUNDS_S, math.inf))]
    tasks, items = list[tuple[Sequence[str], float]](), list[tuple[Sequence[str], float]]()
    for o in queues:
        for lane in Lane:
            counts, sum_s = o.took(lane)
            if any(counts):
                took.add_metric([o.name, lane.value], list(zip(bounds, accumulate(counts), strict=True)), sum_s)
                tasks.append(([o.name, lane, State.COMPLETED], sum(counts)))
        for lane, state in product(Lane, (State.FAILED, State.CANCELLED, State.EXPIRED)):
            tasks.append(([o.name, lane, state], o.counters.get(f"ended_{lane}_{state}", 0)))
        for lane, outcome in product(Lane, ("completed", "failed")):
            items.append(([o.name, lane, outcome], o.counters.get(f"items_{lane}_{outcome}", 0)))
    yield took
    yield _total("embedq_ended_tasks", "By the state in which they ended.", [*_BY_LANE, "state"], tasks)
    yield _total("embedq_ended_items", "Texts that were done.", [*_BY_LANE, "outcome"], items)
    for name in sorted({_FROM_ZERO, *(name for o in queues for name in o.counters if not name.startswith(_NAMED))}):
        values = [([o.name], o.counters.get(name, 0)) for o in queues]
        yield _total(f"embedq_ledger_{name}", "Total since the data began.", ["model"], values)


_ENDS = (
    ("batches", [status.value for status in BatchStatus if status.terminal]),
    ("ingestions", [status.value for status in IngestionStatus if status.terminal]),
)


def _documents(documents: Queue) -> Iterator[Metric]:
    totals = documents.counters
    for kind, statuses in _ENDS:
        values = [([status], totals.get(f"{kind}_{status}", 0)) for status in statuses]
        yield _total(f"embedq_ended_{kind}", "By the status in which they ended.", ["status"], values)
    outcomes = [([outcome], totals.get(f"ingested_{outcome}", 0)) for outcome in ("loaded", "unchanged", "failed")]
    yield _total("embedq_ingested_documents", "Documents that were done.", ["outcome"], outcomes)
    chunks = totals.get("ingested_chunks_embedded", 0)
    yield _total("embedq_ingested_chunks", "Chunks of documents that got their vector.", (), [((), chunks)])
    away = [([name.removeprefix("setbacks_")], totals[name]) for name in sorted(totals) if name.startswith("setbacks_")]
    yield _total("embedq_ingestion_setbacks", "Jobs that found something away.", ["waiting_for"], away)

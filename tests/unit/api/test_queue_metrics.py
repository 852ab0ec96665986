"""What the series of queues say of an overview."""

import dataclasses

from prometheus_client import CollectorRegistry

from api.metrics import Metrics, queue_rows
from api.served_models import ServedModels
from tasks.item import DEFAULT_RATE
from tasks.ledger.overview import Queue, took_counts
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Lane
from tests.unit.api.embedding_requests import MODEL, overview
from worker_config.settings import load_settings


def registry_of(seen: Queue) -> CollectorRegistry:
    """What is shown while the documents queue looks the same."""
    settings = load_settings(served_name=MODEL)
    models = ServedModels(settings)
    models.update({MODEL: seen, DOCUMENTS: dataclasses.replace(seen, name=DOCUMENTS)})
    metrics, registry = Metrics(), CollectorRegistry()
    metrics.add(lambda: queue_rows(models, settings), shared=True)
    registry.register(metrics)
    return registry


def test_work_is_told_in_seconds_of_all_workers() -> None:
    labels = {"model": MODEL, "lane": "online"}
    for rate, seconds in ((50.0, 40.0), (None, 2000 / DEFAULT_RATE)):
        shown = registry_of(overview(workers=0, rate=rate, online=2000))
        assert shown.get_sample_value("embedq_backlog_seconds", labels) == seconds
        assert shown.get_sample_value("embedq_backlog_seconds", labels | {"model": DOCUMENTS}) is None, (
            "it has no speed"
        )


def test_the_time_of_tasks_is_a_histogram() -> None:
    told = took_counts((Lane.BULK, ms) for ms in (3, 6, 6, *[2**28] * 4))
    shown = registry_of(dataclasses.replace(overview(), counters=told))
    labels = {"model": MODEL, "lane": "bulk"}
    buckets = {
        bound: shown.get_sample_value("embedq_task_seconds_bucket", labels | {"le": bound})
        for bound in ("0.004", "0.008", "134217.728", "+Inf")
    }
    assert buckets == {"0.004": 1, "0.008": 3, "134217.728": 3, "+Inf": 7}
    assert shown.get_sample_value("embedq_task_seconds_count", labels) == 7
    assert shown.get_sample_value("embedq_task_seconds_sum", labels) == (3 + 2 * 6 + 4 * 2**28) / 1000

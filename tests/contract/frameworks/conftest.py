"""A served app and a worker for clients inside frameworks, each of which is used as it is."""

import os
from collections.abc import Iterator

import pytest

from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, ServedApp

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported
os.environ["LANGSMITH_TRACING"] = "false"


@pytest.fixture
def worker(redis_url: str) -> Iterator[LedgerWorker]:
    with LedgerWorker(redis_url, MODEL) as started:
        started.announce()
        with started.serving():
            yield started


@pytest.fixture
def base_url(redis_url: str, worker: LedgerWorker) -> Iterator[str]:
    with ServedApp(redis_url) as served:
        yield f"http://127.0.0.1:{served.port}/v1"

"""A served app and a worker that works on whatever comes, for clients that are used as they are."""

import os
from collections.abc import Iterator

import pytest

from tests.integration.api.conftest import serve
from tests.integration.api.conftest import worker as idle
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import Serve

__all__ = ["idle", "serve"]

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when haystack is imported
os.environ["LANGSMITH_TRACING"] = "false"


@pytest.fixture
def worker(idle: LedgerWorker) -> Iterator[LedgerWorker]:
    with idle.serving():
        yield idle


@pytest.fixture
def base_url(serve: Serve, worker: LedgerWorker) -> str:
    """OpenAI's."""
    return f"http://127.0.0.1:{serve().port}/v1"

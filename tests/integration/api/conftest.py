"""Fixtures of the web tier's tests: a served app, and a worker by hand."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from api.waiting.subscription import WaitingTimes
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, ServedApp


@pytest.fixture
def serve(redis_url: str) -> Iterator[Callable[..., ServedApp]]:
    """Serves an app with the given settings until the end of the test."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ServedApp:
            return stack.enter_context(ServedApp(redis_url, **settings))

        yield start


@pytest.fixture
def worker(redis_url: str) -> Iterator[LedgerWorker]:
    """A worker that is known to the ledger and works when it is told to."""
    with LedgerWorker(redis_url, MODEL) as started:
        started.announce()
        yield started


@pytest.fixture
def times() -> WaitingTimes:
    """How long requests of `app` wait. A test that needs others has itself parametrized with them."""
    return WaitingTimes()


@pytest.fixture
def app(worker: LedgerWorker, serve: Callable[..., ServedApp], times: WaitingTimes) -> ServedApp:
    """A served app with default limits; the worker is known to it."""
    return serve(times=times)


@pytest.fixture
def client(app: ServedApp) -> httpx.Client:
    """A client of that app."""
    return app.client

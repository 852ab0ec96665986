"""Fixtures of the web tier's tests: a served app with a storage of its own, its ledger, and a worker by hand."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tasks.ledger.client import Ledger
from tasks.storage.storage import Storage
from tests.integration.api.file_uploads import Upload, upload_with
from tests.integration.api.ledger_worker import LedgerWorker
from tests.integration.api.served import MODEL, Serve, ServedApp
from tests.made_keys import found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that is the storage of served apps."""
    return tmp_path / "storage"


@pytest.fixture
def storage(root: Path) -> Storage:
    return Storage.open(str(root))


@pytest.fixture
def ledger(redis_url: str) -> Iterator[Ledger]:
    with closing(Ledger.connect(redis_url)) as opened:
        yield opened


@pytest.fixture
def serve(redis_url: str, tmp_path: Path) -> Iterator[Serve]:
    """Serves an app with the given settings until the end of the test."""
    with ExitStack() as stack:

        def start(**settings: Any) -> ServedApp:
            merged = {"storage_url": str(tmp_path / "storage")} | settings
            return stack.enter_context(ServedApp(redis_url, **merged))

        yield start


@pytest.fixture
def worker(redis_url: str) -> Iterator[LedgerWorker]:
    """A worker that is known to the ledger and works when it is told to."""
    with LedgerWorker(redis_url, MODEL) as started:
        started.announce()
        yield started


@pytest.fixture
def app(worker: LedgerWorker, serve: Serve) -> ServedApp:
    """A served app with default limits; the worker is known to it."""
    return serve()


@pytest.fixture
def client(app: ServedApp) -> httpx.Client:
    """A client of that app."""
    return app.client


@pytest.fixture
def upload(client: httpx.Client) -> Upload:
    return upload_with(client)


@pytest.fixture
def admin(client: httpx.Client, redis_url: str) -> dict[str, str]:
    """The header of the first key, which closes the service to everybody else."""
    return found(client, redis_url)

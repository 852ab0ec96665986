"""A served app that may read folders, buckets and a database, its storage and its ledger."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.ledger.client import Ledger
from tasks.storage.storage import Storage
from tests.integration.api.served import ServedApp

SINKS = "store=postgresql://me:secret-password@db/vectors"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(root: Path) -> Storage:
    return Storage.open(str(root))


@pytest.fixture
def app(worker: object, serve: Callable[..., ServedApp], root: Path) -> ServedApp:
    return serve(storage_url=str(root), ingest_roots="/srv/docs,s3://bucket/in", sinks=SINKS)


@pytest.fixture
def ledger(redis_url: str) -> Ledger:
    return Ledger.connect(redis_url)

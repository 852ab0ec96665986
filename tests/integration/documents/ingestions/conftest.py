"""An ingestion's two workers, by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.ledger import task
from tasks.ledger.client import Ledger
from tests.integration.documents.ingestions.hands import IngestionHands


@pytest.fixture
def hands(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IngestionHands]:
    monkeypatch.setattr(task, "PIECE_TEXTS", 4)
    ledger = Ledger.connect(redis_url)
    yield IngestionHands(ledger, tmp_path / "storage", ingest_roots=str(tmp_path))
    ledger.close()

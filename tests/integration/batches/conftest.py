"""Both workers of a batch, by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.ledger import task
from tasks.ledger.client import Ledger
from tests.integration.batches.hands import Hands


@pytest.fixture
def hands(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    monkeypatch.setattr(task, "PIECE_TEXTS", 4)
    ledger = Ledger.connect(redis_url)
    yield Hands(ledger, tmp_path / "storage")
    ledger.close()

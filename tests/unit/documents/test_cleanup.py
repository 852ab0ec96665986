"""When the sweep is due again."""

from typing import Any

import pytest

from tasks.documents import cleanup
from tasks.documents.cleanup import SWEEP_AGAIN_S, Cleanup
from tasks.errors import StorageUnavailable
from worker_config.settings import Settings


class Context:
    """Has neither a storage nor a ledger: the sweeps do not look at them."""

    storage = ledger = None
    settings = Settings()


def test_the_pause_begins_when_a_sweep_has_failed_however_long_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    swept: list[str] = []

    def slow(*_: Any) -> None:
        nonlocal now
        swept.append("files")
        now += 2 * SWEEP_AGAIN_S
        raise StorageUnavailable("It does not answer.", retry_after_s=10)

    monkeypatch.setattr(cleanup, "is_ours", lambda *_: True)
    monkeypatch.setattr(cleanup, "sweep", slow)
    monkeypatch.setattr(cleanup, "sweep_batches", lambda *_: swept.append("batches"))
    monkeypatch.setattr(cleanup, "sweep_ingestions", lambda *_: swept.append("ingestions"))
    monkeypatch.setattr(cleanup, "sweep_datasets", lambda *_: swept.append("datasets"))
    step: Any = Cleanup(lambda: now)
    with pytest.raises(StorageUnavailable):
        step(Context)
    assert swept == ["files", "batches", "ingestions", "datasets"]
    step(Context)
    assert len(swept) == 4
    now += SWEEP_AGAIN_S
    with pytest.raises(StorageUnavailable):
        step(Context)

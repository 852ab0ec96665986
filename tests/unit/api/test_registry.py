"""What the web tier makes of the ledger's overviews."""

from types import SimpleNamespace

import pytest

from tests.unit.api.test_submission import MODEL, drafter, overview


def test_a_model_is_absent_from_when_its_last_worker_was_seen_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr("api.queue.served_models.time", SimpleNamespace(monotonic=lambda: clock.now_s))
    registry = drafter(overview(workers=0)).registry  # a process that has just started knows of no time before
    assert registry.absent_s(MODEL) == 0

    clock.now_s = 130
    registry.update({MODEL: overview(workers=0)})
    assert registry.absent_s(MODEL) == 30

    registry.update({MODEL: overview(workers=1)})
    clock.now_s = 200
    assert registry.absent_s(MODEL) == 0

    registry.update({MODEL: overview(workers=0)})
    clock.now_s = 290
    assert registry.absent_s(MODEL) == 90

    registry.lost()  # while Redis was away, no worker could say that it is there
    registry.update({MODEL: overview(workers=0)})
    assert registry.absent_s(MODEL) == 0

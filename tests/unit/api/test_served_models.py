"""What the web tier makes of the ledger's overviews."""

from types import SimpleNamespace
from typing import Any

from api.served_models import ServedModels
from tests.unit.api.embedding_requests import ENTRY, MODEL, overview, served
from worker_config.settings import load_settings


def test_a_model_is_absent_from_when_its_last_worker_was_seen_to_be_gone() -> None:
    clock = SimpleNamespace(now_s=100.0)
    registry = ServedModels(load_settings(served_name=MODEL), clock=lambda: clock.now_s)
    registry.update({MODEL: overview(workers=0)})  # a process that has just started knows of no time before
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


def test_a_model_is_looked_up_anew_after_each_overview() -> None:
    registry = served()
    assert registry.served(MODEL) == registry.served(None)
    assert registry.served(None).entry is None

    registry.update({MODEL: overview(workers=2, rate=100)})
    assert (registry.served(None).entry, registry.served(MODEL).rate, registry.served(MODEL).streams) == (ENTRY, 100, 2)

    registry.update({MODEL: overview(workers=1, rate=50)})
    assert (registry.served(MODEL).rate, registry.served(MODEL).streams) == (50, 1)


def test_a_thread_that_looks_a_model_up_while_an_overview_comes_keeps_nothing_old() -> None:
    registry = ServedModels(load_settings(served_name=MODEL))

    class Overtaken(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            registry.update({MODEL: overview(workers=2, rate=100)})
            return super().get(key, default)

    registry.update({MODEL: overview(workers=1, rate=50)})
    registry.overviews = Overtaken(registry.overviews)
    assert registry.served(MODEL).rate == 50
    assert registry.served(MODEL).rate == 100

"""What the web tier makes of the ledger's overviews."""

from types import SimpleNamespace
from typing import Any

from api.served_models import ServedModels
from tests.unit.api.embedding_requests import MODEL, overview
from worker_config.settings import load_settings


def test_a_model_is_absent_from_when_its_last_worker_was_seen_to_be_gone() -> None:
    clock = SimpleNamespace(now_s=100.0)
    models = ServedModels(load_settings(served_name=MODEL), clock=lambda: clock.now_s)
    models.update({MODEL: overview(workers=0)})  # a process that has just started knows of no time before
    assert models.absent_s(MODEL) == 0

    clock.now_s = 130
    models.update({MODEL: overview(workers=0)})
    assert models.absent_s(MODEL) == 30

    models.update({MODEL: overview(workers=1)})
    clock.now_s = 200
    assert models.absent_s(MODEL) == 0

    models.update({MODEL: overview(workers=0)})
    clock.now_s = 290
    assert models.absent_s(MODEL) == 90

    models.lost("away")  # while Redis was away, no worker could say that it is there
    models.update({MODEL: overview(workers=0)})
    assert models.absent_s(MODEL) == 0


def test_a_thread_that_looks_a_model_up_while_an_overview_comes_keeps_nothing_old() -> None:
    models = ServedModels(load_settings(served_name=MODEL))

    class Overtaken(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            models.update({MODEL: overview(workers=2, rate=100)})
            return super().get(key, default)

    models.update({MODEL: overview(workers=1, rate=50)})
    models.known = Overtaken(models.known)
    assert models.served(MODEL).rate == 50
    assert models.served(MODEL).rate == 100

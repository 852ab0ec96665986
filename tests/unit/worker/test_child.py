"""What a child does around the start of its role."""

import gc
from collections.abc import Callable
from pathlib import Path

from tasks.worker.process.child import Role, WorkerChild
from tasks.worker.process.hangs import DEFAULT_PATIENCE
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from worker_config.settings import load_settings


def test_a_full_round_of_the_garbage_collector_leaves_out_what_was_loaded(tmp_path: Path) -> None:
    loaded: list[list[int]] = []

    def start(_: WorkerChild) -> Callable[[float], None]:
        loaded.extend([n] for n in range(10_000))
        return lambda _: None

    folder, shared = RunFolder(tmp_path), SharedPage.make()
    role = Role("worker", lambda settings: settings.served_model_name, start, ())
    child = WorkerChild(
        role, load_settings(), folder=folder, shared=shared, patience=DEFAULT_PATIENCE, worker_id="w"
    )  # fmt: skip
    child.load()
    in_rounds = {id(each) for each in gc.get_objects()}
    assert not in_rounds.intersection(map(id, loaded))
    assert shared.loaded == 1

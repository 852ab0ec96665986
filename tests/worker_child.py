"""A child of a worker without its Celery parent, for streams that a test runs by itself."""

from pathlib import Path
from typing import Any

from tasks.worker.__main__ import MODEL_WORKER
from tasks.worker.process.child import WorkerChild
from tasks.worker.process.hangs import DEFAULT_PATIENCE
from tasks.worker.process.ready_file import RunFolder
from tasks.worker.process.stop import SharedPage
from worker_config.settings import load_settings


def a_child(worker_id: str = "w", **settings: Any) -> WorkerChild:
    """Its bells go nowhere."""
    folder, shared = RunFolder(Path("/nonexistent")), SharedPage.make()
    return WorkerChild(
        MODEL_WORKER,
        load_settings(**settings),
        folder=folder,
        shared=shared,
        patience=DEFAULT_PATIENCE,
        worker_id=worker_id,
    )

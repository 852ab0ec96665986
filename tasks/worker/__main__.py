"""`python -m tasks.worker`: the model worker. Its Celery side is in `process/`."""

import sys

from tasks.encoder.interface import ModelLoadError
from tasks.errors import EmbedqError
from tasks.worker.model_worker import ModelWorker
from tasks.worker.process import parent
from tasks.worker.process.child import Role
from tasks.worker.process.hangs import DEFAULT_PATIENCE, Patience

MODEL_WORKER = Role(
    command="worker",
    queue=lambda settings: settings.served_model_name,
    start=ModelWorker.start,
    refusals=(ModelLoadError, EmbedqError),
)


def main(patience: Patience = DEFAULT_PATIENCE) -> int:
    """Entry point."""
    return parent.main(MODEL_WORKER, patience)


if __name__ == "__main__":
    sys.exit(main())

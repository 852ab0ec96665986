"""The model worker: `python -m tasks.worker`. Its Celery side is in `process/`, its work in `embedding/`."""

import gc

gc.disable()  # what is imported stays: the collector's rounds over it took a quarter of a start's processor time

import sys

from tasks.embedding.process import ModelWorker
from tasks.encoder.interface import EncoderBroken, ModelLoadError
from tasks.errors import EmbedqError, ModelChanged
from tasks.process import parent
from tasks.process.liveness import DEFAULT_PATIENCE, Patience
from tasks.process.role import Role

gc.enable()

MODEL_WORKER = Role(
    command="worker",
    title="model worker",
    queue=lambda settings: settings.served_model_name,
    start=ModelWorker.start,
    refusals=(ModelLoadError, EmbedqError),
    breaks=(EncoderBroken, ModelChanged),
)


def main(patience: Patience = DEFAULT_PATIENCE) -> int:
    """Entry point."""
    return parent.main(MODEL_WORKER, patience)


if __name__ == "__main__":
    sys.exit(main())

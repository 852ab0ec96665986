"""The model worker: `python -m tasks.worker`. Celery's side of it is in `role.py`; the work is in `model_worker.py`."""

import sys
from functools import partial

from tasks.embedding.process import ModelWorker
from tasks.errors import EmbedqError, ModelChanged
from tasks.model.encoder import EncoderBroken, ModelLoadError
from tasks.process import role
from worker_config.settings import Settings


def _queue(settings: Settings) -> str:
    return settings.served_model_name


def _start(start: role.Start) -> ModelWorker:
    send_bell = partial(start.ring, _queue(start.settings))
    return ModelWorker.start(start.settings, start.worker_id, stop=start.stop, send_bell=send_bell, wake=start.wake)


MODEL_WORKER = role.Role(
    command="worker",
    title="model worker",
    queue=_queue,
    start=_start,
    refusals=(ModelLoadError, EmbedqError),
    breaks=(EncoderBroken, ModelChanged),
)


def main() -> int:
    """Entry point."""
    return role.main(MODEL_WORKER)


if __name__ == "__main__":
    sys.exit(main())

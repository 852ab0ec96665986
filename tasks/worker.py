"""The model worker: `python -m tasks.worker`. Celery's side of it is in `role.py`; the work is in `model_worker.py`."""

import sys
from functools import partial

from tasks import role
from tasks.errors import EmbedqError
from tasks.model.errors import EncoderBroken, ModelLoadError
from tasks.model_worker import ModelWorker
from tasks.rate import longest_claim_s
from worker_config.settings import Settings

_HUNG_AFTER_LEASES = 4


def _queue(settings: Settings) -> str:
    return settings.served_model_name


def _start(start: role.Start) -> ModelWorker:
    send_bell = partial(start.ring, _queue(start.settings))
    return ModelWorker.start(start.settings, start.worker_id, stop=start.stop, send_bell=send_bell, wake=start.wake)


def _limit_s(settings: Settings) -> float:
    """A slice that takes longer hangs: its claim may be the longest one.

    The last resort for a hung kernel: its lease ran out long before, but the process would stay hung for ever. It costs
    a reload of the model, so it is far above the longest slice.
    """
    return settings.slice_s + longest_claim_s(settings.unit_s) + _HUNG_AFTER_LEASES * settings.lease_s


MODEL_WORKER = role.Role(
    command="worker",
    title="model worker",
    queue=_queue,
    start=_start,
    refusals=(ModelLoadError, EmbedqError),
    breaks=(EncoderBroken,),
    limit_s=_limit_s,
)


def main() -> int:
    """Entry point."""
    return role.main(MODEL_WORKER)


if __name__ == "__main__":
    sys.exit(main())

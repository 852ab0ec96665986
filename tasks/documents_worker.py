"""The documents worker: `python -m tasks.documents_worker`. Work that needs no model: checks files, assembles outputs.

Celery's side of it is in `role.py`, the work in `job_worker.py`.
"""

import sys

from tasks import role
from tasks.errors import EmbedqError
from tasks.job_worker import JobWorker
from tasks.ledger import DOCUMENTS
from worker_config.settings import Settings


def _queue(_: Settings) -> str:
    return DOCUMENTS


def _start(start: role.Start) -> JobWorker:
    return JobWorker.start(start.settings, start.worker_id, stop=start.stop, ring=start.ring, wake=start.wake)


DOCUMENTS_WORKER = role.Role(
    command="documents-worker",
    title="documents worker",
    queue=_queue,
    start=_start,
    refusals=(EmbedqError,),
    breaks=(),
)


def main() -> int:
    """Entry point."""
    return role.main(DOCUMENTS_WORKER)


if __name__ == "__main__":
    sys.exit(main())

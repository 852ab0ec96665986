"""The documents worker: `python -m tasks.ingestion`. Work that needs no model: ingestions and batches.

Its Celery side is in `worker/process/`.
"""

import sys

from tasks.errors import EmbedqError
from tasks.ingestion.process import JobWorker
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.worker.process import parent
from tasks.worker.process.child import Role
from tasks.worker.process.hangs import DEFAULT_PATIENCE

DOCUMENTS_WORKER = Role(
    command="documents-worker",
    queue=lambda _: DOCUMENTS,
    start=JobWorker.start,
    refusals=(EmbedqError,),
)


def main() -> int:
    """Entry point."""
    return parent.main(DOCUMENTS_WORKER, DEFAULT_PATIENCE)


if __name__ == "__main__":
    sys.exit(main())

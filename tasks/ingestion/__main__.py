"""The documents worker: `python -m tasks.ingestion`. Work that needs no model: ingestions and batches.

Its Celery side is in `worker/process/`.
"""

import contextlib
import ctypes
import sys

from tasks.errors import EmbedqError
from tasks.ingestion.process import JobWorker
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.worker.process import parent
from tasks.worker.process.child import Role
from tasks.worker.process.hangs import DEFAULT_PATIENCE, Patience

_PR_SET_DUMPABLE = 4

DOCUMENTS_WORKER = Role(
    command="documents-worker",
    queue=lambda _: DOCUMENTS,
    start=JobWorker.start,
    refusals=(EmbedqError,),
)


def hide_environment() -> None:
    """Closes /proc/<pid>/environ of this process and its children to others of the same user, where there is Linux.

    The parser of strangers' documents is such another one. It gets an environment without secrets, and must not find
    them in that of its parent.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(patience: Patience = DEFAULT_PATIENCE) -> int:
    """Entry point."""
    hide_environment()
    return parent.main(DOCUMENTS_WORKER, patience)


if __name__ == "__main__":
    sys.exit(main())

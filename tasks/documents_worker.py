"""The documents worker: `python -m tasks.documents_worker`. Work that needs no model: checks files, assembles outputs.

Celery's side of it is in `role.py`, the work in `job_worker.py`.
"""

import contextlib
import ctypes
import sys

from tasks.documents.process import JobWorker
from tasks.errors import EmbedqError
from tasks.ledger import DOCUMENTS
from tasks.process import role
from worker_config.settings import Settings

_PR_SET_DUMPABLE = 4


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


def hide_environment() -> None:
    """Closes /proc/<pid>/environ of this process and its children to others of the same user, where there is Linux.

    What parses strangers' documents is such another one. It gets an environment without secrets, and must not find them
    in that of its parent.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main() -> int:
    """Entry point."""
    hide_environment()
    return role.main(DOCUMENTS_WORKER)


if __name__ == "__main__":
    sys.exit(main())

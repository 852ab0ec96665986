"""A documents worker with jobs and steps for trials: `python -m tests.integration.documents.trial`, and
after how many seconds what stands still hangs.

Each job appends a line to the stored object `journal`'s folder by its own fence, so that a test sees every run.
"""

import sys
import threading
import time

import orjson

from tasks import documents_worker
from tasks.documents.context import JobContext, StepContext
from tasks.documents.jobs import JOBS
from tasks.documents.stepper import STEPS, SWEEPS
from tasks.errors import Invalid, StorageUnavailable
from tasks.worker.process.hangs import DEFAULT_PATIENCE, Patience


def echo(context: JobContext, job_id: str) -> bytes:
    """Says under which fence it ran."""
    return orjson.dumps({"id": job_id, "fence": context.fence})


def slow(context: JobContext, job_id: str) -> bytes:
    """Leaves a mark, then moves until the object `go/{id}` is there."""
    context.storage.write(f"runs/{job_id}/{context.fence}", b"1")
    while not _there(context, f"go/{job_id}"):
        context.progress()
        time.sleep(0.01)
    return orjson.dumps({"fence": context.fence})


def hang(context: JobContext, job_id: str) -> bytes:
    """Stands still in its first run."""
    context.storage.write(f"runs/{job_id}/{context.fence}", b"1")
    if len(list(context.storage.stored(f"runs/{job_id}"))) == 1:
        threading.Event().wait()
    return b"{}"


def refused(_: JobContext, __: str) -> bytes:
    """Fails as foreseen."""
    raise Invalid("invalid_file_format", "This file is no good.")


def listed(_: JobContext, __: str) -> bytes:
    """Returns no JSON object."""
    return b"[]"


def broken(context: JobContext, job_id: str) -> bytes:
    """Fails as nobody foresaw."""
    context.storage.write(f"runs/{job_id}/{context.fence}", b"1")
    raise ZeroDivisionError(job_id)


def away(context: JobContext, job_id: str) -> bytes:
    """Finds the storage away until the object `go/{id}` is there."""
    context.storage.write(f"runs/{job_id}/{context.fence}", b"1")
    if not _there(context, f"go/{job_id}"):
        raise StorageUnavailable("The storage is away.")
    return b"{}"


def count(context: StepContext) -> None:
    """Writes how often the steps were taken, and asks Redis something."""
    count.taken += 1  # type: ignore[attr-defined]
    context.ledger.client.ping()
    context.storage.write("steps", str(count.taken).encode())  # type: ignore[attr-defined]


def fail(_: StepContext) -> None:
    """A step that always fails."""
    raise ZeroDivisionError


def stand_still(context: StepContext) -> None:
    """A step that hangs once, when the object `hang/steps` is there."""
    if any(context.storage.stored("hang")):
        context.storage.delete("hang/")
        threading.Event().wait()


def sweep_for_ever(context: StepContext) -> None:
    """A sweep that never ends."""
    context.storage.write("sweeps/1", b"1")
    threading.Event().wait()


count.taken = 0  # type: ignore[attr-defined]


def _there(context: JobContext, name: str) -> bool:
    return any(found.name == name for found in context.storage.stored("go"))


if __name__ == "__main__":
    JOBS.update(echo=echo, slow=slow, hang=hang, refused=refused, listed=listed, broken=broken, away=away)
    STEPS[:] = [fail, count, stand_still]
    SWEEPS[:] = [sweep_for_ever]
    patience = Patience(work_s=float(sys.argv[1])) if sys.argv[1:] else DEFAULT_PATIENCE
    sys.exit(documents_worker.main(patience))

"""A documents worker with stages and rounds for trials: `python -m tests.integration.documents.trial`, and
after how many seconds what stands still hangs.

Each stage leaves an object with the name of its own run, so that a test sees every run.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from tasks.errors import StorageUnavailable
from tasks.ingestion import __main__ as documents_worker
from tasks.ingestion.context import StageContext
from tasks.ingestion.driver import Driver
from tasks.ingestion.job_runner import STAGES
from tasks.records.jobs import Stage
from tasks.storage.sweep import Sweep
from tasks.storage.vectors_file import fence
from tasks.worker.process.hangs import DEFAULT_PATIENCE, Patience


def echo(context: StageContext, name: str) -> dict[str, Any]:
    """Says under which fence it ran."""
    return {"id": name, "fence": fence(context.token)}


def slow(context: StageContext, name: str) -> dict[str, Any]:
    """Leaves a mark, then moves until the object `go/{name}` is there."""
    _mark(context, name)
    while not any(found.name == f"go/{name}" for found in context.storage.stored("go")):
        context.progress()
        time.sleep(0.01)
    return {"fence": fence(context.token)}


def broken(context: StageContext, name: str) -> dict[str, Any]:
    """Fails as nobody foresaw."""
    _mark(context, name)
    raise ZeroDivisionError(name)


def away(_: StageContext, __: str) -> dict[str, Any]:
    """Finds the storage away."""
    raise StorageUnavailable("The storage is away.")


TRIALS: dict[str, Callable[[StageContext, str], dict[str, Any]]] = {
    function.__name__: function for function in (echo, slow, broken, away)
}


def _mark(context: StageContext, name: str) -> None:
    context.storage.write(f"runs/{name}/{fence(context.token)}", b"1")


def run(context: StageContext) -> dict[str, Any]:
    """What the request of the job names."""
    request = context.job.record.request
    return TRIALS[request["trial"]](context, request["name"])


def drive(driver: Driver) -> None:
    """Writes how often it was called, and asks Redis something. Hangs once, when the object `hang/driver` is there."""
    drive.taken += 1  # type: ignore[attr-defined]
    driver.ledger.client.ping()
    driver.storage.write("rounds", str(drive.taken).encode())  # type: ignore[attr-defined]
    if any(driver.storage.stored("hang")):
        driver.storage.delete("hang/")
        threading.Event().wait()
    raise ZeroDivisionError


drive.taken = 0  # type: ignore[attr-defined]


def sweep_for_ever(sweep: Sweep) -> None:
    """A sweep that never ends."""
    sweep._storage.write("sweeps/1", b"1")
    threading.Event().wait()


if __name__ == "__main__":
    STAGES["batch", Stage.PARSE] = run
    Driver.__call__ = drive  # type: ignore[method-assign,assignment]
    Sweep.__call__ = sweep_for_ever  # type: ignore[method-assign,assignment]
    patience = Patience(work_s=float(sys.argv[1])) if sys.argv[1:] else DEFAULT_PATIENCE
    sys.exit(documents_worker.main(patience))

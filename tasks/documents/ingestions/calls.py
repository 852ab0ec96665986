"""What the jobs of an ingestion are called with, and how one that waits for something says so."""

import contextlib
from collections.abc import Iterator

from tasks.documents.context import JobContext
from tasks.errors import EmbedqError, NotReady, SinkUnavailable, StorageUnavailable, Unavailable
from tasks.ledger.ingestion_operations import Move, move_ingestion, read_ingestion
from tasks.ledger.ingestions import Ingestion, IngestionStatus

GONE = b'{"gone":true}'
"""The outcome of a job that came too late: its ingestion has ended, or another run was faster."""

_OPEN = [status for status in IngestionStatus if not status.terminal]
_NAMES: dict[type[Unavailable], str] = {SinkUnavailable: "sink", StorageUnavailable: "storage", NotReady: "model"}


def job_id(ingestion: Ingestion, number: int | None = None) -> str:
    """For a job about a page, a listing or a load with this number."""
    return ingestion.id if number is None else f"{ingestion.id}/{number}"


def find(context: JobContext, job: str) -> tuple[Ingestion | None, int]:
    """The ingestion of a job, None when it has ended, and the number that the job is about."""
    ingestion_id, _, number = job.partition("/")
    ingestion = context.ledger.run(read_ingestion(ingestion_id))
    return (None if ingestion is None or ingestion.status.terminal else ingestion), int(number or 0)


@contextlib.contextmanager
def saying_what_it_waits_for(context: JobContext, ingestion: Ingestion) -> Iterator[None]:
    """Notes in the ingestion what is away, when the block finds something away, and takes it back when not."""
    try:
        yield
    except Unavailable as error:
        what = next((name for kind, name in _NAMES.items() if isinstance(error, kind)), error.code)
        with contextlib.suppress(EmbedqError):
            context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, set={"waiting_for": what})))
        raise
    if ingestion.waiting_for is not None:
        context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, unset=["waiting_for"])))

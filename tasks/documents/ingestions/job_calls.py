"""What the jobs of an ingestion are called with, and how one that waits for something says so."""

import dataclasses
import logging
from collections.abc import Callable

from tasks.documents.context import JobContext
from tasks.documents.deaths import pause_s
from tasks.errors import NotReady, RedisUnavailable, SinkUnavailable, StorageUnavailable, Unavailable
from tasks.records.ingestion_operations import (
    Move,
    losses_field,
    move_ingestion,
    read_ingestion,
    setback_field,
)
from tasks.records.ingestions import Ingestion, IngestionStatus, Setback

_log = logging.getLogger(__name__)

GONE = b'{"gone":true}'
"""The outcome of a job that did nothing: its ingestion has ended, another run was faster, or something is away."""

_OPEN = [status for status in IngestionStatus if not status.terminal]
_NAMES: dict[type[Unavailable], str] = {SinkUnavailable: "sink", StorageUnavailable: "storage", NotReady: "model"}


def job_id(ingestion: Ingestion, number: int) -> str:
    """For a job about a page, a listing or a load with this number."""
    return f"{ingestion.id}/{number}"


def find(context: JobContext, job: str) -> tuple[Ingestion | None, int]:
    """The ingestion of a job, None when it has ended, and the number that the job is about."""
    ingestion_id, _, number = job.partition("/")
    ingestion = context.ledger.run(read_ingestion(ingestion_id))
    return (None if ingestion is None or ingestion.status.terminal else ingestion), int(number or 0)


def patiently(context: JobContext, ingestion: Ingestion, name: str, work: Callable[[], bytes]) -> bytes:
    """The outcome of a `list`, `parse`, `load` or `finish`; `GONE` where something that it needs is away.

    The ingestion then says what is away, and until when no such job need be tried again: it would only take the turns
    of others.

    Raises:
        RedisUnavailable: nobody can be told.
    """
    try:
        outcome = work()
    except RedisUnavailable:
        raise
    except Unavailable as error:
        _put_off(context, ingestion, name, error)
        return GONE
    if name in ingestion.setbacks:
        context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, unset=[setback_field(name), losses_field(name)])))
    return outcome


def after(ingestion: Ingestion, name: str, what: str) -> Setback:
    """The setback of a kind of job that has failed once more for `what`, at the moment of `ingestion`."""
    before = ingestion.setbacks[name].times if name in ingestion.setbacks else 0
    return Setback(before + 1, what, ingestion.now_ms + round(pause_s(before) * 1000))


def _put_off(context: JobContext, ingestion: Ingestion, name: str, error: Unavailable) -> None:
    what = next((known for kind, known in _NAMES.items() if isinstance(error, kind)), error.code)
    _log.warning("%s of %s waits: %s", name, ingestion.id, error.code)
    now = context.ledger.run(read_ingestion(ingestion.id))
    if now is None:
        return
    setback = after(dataclasses.replace(ingestion, now_ms=now.now_ms), name, what)
    context.ledger.run(move_ingestion(ingestion.id, Move(_OPEN, set={setback_field(name): setback.to_text()})))

"""The ledger tasks of an ingestion, as they are submitted.

Their ids follow from the ingestion's and a number, so submitting one again is harmless.
"""

import logging
from collections.abc import Mapping
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.ingestions.calls import job_id
from tasks.documents.jobs import JobCall
from tasks.errors import BacklogFull, StorageFull
from tasks.ledger import DOCUMENTS, Admission, Lane, NewUnit, Options, Submission, operations
from tasks.ledger.ingestions import Ingestion, Page
from tasks.ledger.rows import UnitReference
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_KIND = {"list": "list_page", "parse": "parse_page", "load": "load_pages", "finish": "finish_ingestion"}
_LANE = {"list": Lane.BULK, "parse": Lane.BULK, "load": Lane.ONLINE, "finish": Lane.ONLINE}
"""What is embedded is loaded before more is parsed: it takes up room."""
_REFERENCE_BYTES = 200
"""Of what a unit commits: a reference to its part."""
_ANY_BACKLOG = Admission(max_backlog_s=1e12)
"""Jobs of an ingestion are a few at any time, and whoever has one has been let in."""


def job(ingestion: Ingestion, name: str, number: int | None, settings: Settings) -> Submission:
    """A task that needs no model: a `list`, `parse`, `load` or `finish`."""
    call = JobCall(_KIND[name], job_id(ingestion, number))
    return Submission(
        task_id=ingestion.task_id(name, number),
        model=DOCUMENTS,
        lane=_LANE[name],
        owner=ingestion.owner,
        units=[call.to_unit()],
        options=Options(),
        ttl_ms=_ttl_ms(settings),
        admission=_ANY_BACKLOG,
    )


def embedding(ingestion: Ingestion, page: Page, found: Mapping[str, Any], settings: Settings) -> Submission:
    """The task that encodes the chunks which PARSE `found`."""
    units, rows = found["units"], found["rows"]
    return Submission(
        task_id=ingestion.task_id("embed", page.number),
        model=ingestion.model,
        lane=Lane.BULK,
        owner=ingestion.owner,
        units=[
            NewUnit(count, cost, UnitReference(found["source"], found["index"], first).to_payload())
            for first, count, cost in units
        ],
        options=Options(),
        ttl_ms=_ttl_ms(settings),
        admission=Admission(
            max_backlog_s=settings.max_backlog_bulk_s,
            max_backlog_bytes=settings.max_backlog_bytes,
            max_memory_percent=settings.max_redis_memory_percent,
            vector_bytes=-(-_REFERENCE_BYTES * len(units) // rows),
        ),
    )


def submit(context: StepContext, task: Submission) -> bool:
    """Stores a task; False when there is no room for it now: the next step tries again."""
    try:
        reply = context.ledger.run(operations.submit(task))
    except (BacklogFull, StorageFull) as error:
        _log.info("%s waits: %s", task.task_id, error.code)
        return False
    if reply.ring:
        context.ring(task.model)
    return True


def forget(context: StepContext, ingestion: Ingestion, name: str, number: int | None = None) -> None:
    """Ends a task and removes every trace of it, if there is one."""
    model = ingestion.model if name == "embed" else DOCUMENTS
    context.ledger.run(operations.forget(model, ingestion.task_id(name, number)))


def _ttl_ms(settings: Settings) -> int:
    # They are forgotten when their page is closed. Until then what they hold must outlive any outage.
    return round(settings.batch_ttl_s * 1000)

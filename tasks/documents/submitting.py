"""Submitting what batches and ingestions have done: jobs, and rows by reference as bulk work, when there is room."""

import logging
from collections.abc import Mapping
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.jobs import JobCall
from tasks.errors import BacklogFull, StorageFull
from tasks.item import Options
from tasks.ledger import DOCUMENTS, Admission, Lane, NewUnit, Submission, operations
from tasks.storage.row_file import UnitReference
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_REFERENCE_BYTES = 200
"""Of what a unit commits: a reference to its part."""
_ACCEPTED_PART = 2
"""Of what may wait: whoever has a batch or an ingestion has been let in, and clients that knock every second must not
keep its rows out."""
_ANY_BACKLOG = Admission(max_backlog_s=1e12)
"""Jobs of a batch or an ingestion are a few at any time, and whoever has one has been let in."""
_KEPT_MS = 400 * 86_400_000
"""From a task's end. They are forgotten when what they belong to has ended. Until then what they hold must outlive any
outage, and the longest window of a batch: a retention that users choose for what has ended has no part in it."""


def job_task(task_id: str, call: JobCall, *, owner: str, lane: Lane = Lane.BULK) -> Submission:
    """The task of a job, which needs no model."""
    return Submission(
        task_id=task_id,
        queue=DOCUMENTS,
        lane=lane,
        owner=owner,
        units=[call.to_unit()],
        options=Options(),
        ttl_ms=_KEPT_MS,
        admission=_ANY_BACKLOG,
    )


def rows_task(
    task_id: str,
    found: Mapping[str, Any],
    rows: int,
    settings: Settings,
    *,
    model: str,
    owner: str,
    deadline_in_ms: int | None = None,
) -> Submission:
    """The task that encodes the rows which a job `found`: `source`, `index`, and `units` as (first, count, cost)."""
    units = found["units"]
    return Submission(
        task_id=task_id,
        queue=model,
        lane=Lane.BULK,
        owner=owner,
        units=[
            NewUnit(count, max(1, cost), UnitReference(found["source"], found["index"], first).to_payload())
            for first, count, cost in units
        ],
        options=Options(),
        ttl_ms=_KEPT_MS,
        admission=Admission(
            max_backlog_s=_ACCEPTED_PART * settings.max_backlog_bulk_s,
            max_backlog_bytes=_ACCEPTED_PART * settings.max_backlog_bytes,
            max_memory_percent=settings.max_redis_memory_percent,
            vector_bytes=-(-_REFERENCE_BYTES * len(units) // rows),
        ),
        deadline_in_ms=deadline_in_ms,
    )


def submit(context: StepContext, task: Submission) -> bool:
    """Stores a task; False when there is no room for it now: `context.postponed` says until when not to try again."""
    try:
        reply = context.ledger.run(operations.submit(task))
    except (BacklogFull, StorageFull) as error:
        _log.info("%s waits: %s", task.task_id, error.code)
        context.postponed.refused(task.task_id, error.retry_after_s)
        return False
    if reply.ring:
        context.ring(task.queue)
    return True

"""Tasks of batches and ingestions that embed rows by reference, as bulk work, and how their tasks are submitted."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.documents.context import StepContext
from tasks.errors import BacklogFull, StorageFull
from tasks.item import Options
from tasks.ledger import Admission, Lane, NewTask, NewUnit, operations
from tasks.ledger.task import MAX_BACKLOG_BYTES
from tasks.records.document_jobs import KEPT_MS
from tasks.storage.row_file import UnitReference
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

_REFERENCE_BYTES = 200
"""Of what a unit commits: a reference to its part."""
_ANY_BACKLOG_S = 1e12
"""Whoever has a batch has been let in: neither the work of others nor a limit of the owner keeps its rows out. The
number of open batches and the memory bound what waits."""
MAX_ACCEPTED_BYTES = 2 * MAX_BACKLOG_BYTES
"""Twice what callers may have waiting: clients that knock every second must not keep rows out."""
_FULL_S = 5.0
"""Until the next look at a Redis that was full. Its refusal names a minute, so that callers do not crowd; steps are
few, and there may be room in a moment."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a job has written.

    Attributes:
        source, index: stored names of the lines and of their index.
        count: how many there are.
        units: first row, number and estimated tokens of each unit.
    """

    source: str
    index: str
    count: int
    units: Sequence[Sequence[int]]


def rows_task(
    task_id: str,
    rows: Rows,
    settings: Settings,
    *,
    model: str,
    owner: str,
    deadline_in_ms: int | None = None,
    trace: str = "",
) -> NewTask:
    """The task that encodes rows."""
    return NewTask(
        task_id=task_id,
        queue=model,
        lane=Lane.BULK,
        owner=owner,
        units=[
            NewUnit(count, max(1, cost), UnitReference(rows.source, rows.index, first).to_payload())
            for first, count, cost in rows.units
        ],
        options=Options(),
        ttl_ms=KEPT_MS,
        admission=Admission(
            max_backlog_s=_ANY_BACKLOG_S,
            max_backlog_bytes=MAX_ACCEPTED_BYTES,
            max_memory_percent=settings.max_redis_memory_percent,
            vector_bytes=-(-_REFERENCE_BYTES * len(rows.units) // rows.count),
        ),
        deadline_in_ms=deadline_in_ms,
        wakes_steps=True,
        trace=trace,
    )


def submit(context: StepContext, task: NewTask) -> bool:
    """Stores a task; False when there is no room for it now: `context.postponed` says until when not to try again."""
    try:
        reply = context.ledger.run(operations.submit(task))
    except (BacklogFull, StorageFull) as error:
        _log.info("%s waits: %s", task.task_id, error.code)
        wait_s = error.retry_after_s or 1.0
        context.postponed.refused(task.task_id, min(wait_s, _FULL_S) if isinstance(error, StorageFull) else wait_s)
        return False
    if reply.bell_due:
        context.send_bell(task.queue)
    return True

"""Tasks of batches and ingestions, as they are submitted: jobs, and rows by reference as bulk work."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import orjson

from tasks.documents.context import StepContext
from tasks.errors import BacklogFull, StorageFull
from tasks.item import Options
from tasks.ledger import DOCUMENTS, Admission, Lane, NewUnit, Submission, operations
from tasks.storage.row_file import UnitReference
from worker_config.settings import Settings

_log = logging.getLogger(__name__)

JOB_COST = 1
"""Of any job when it is claimed, in the unit of the ledger. Workers say that they do one in a second; what took
longer is charged to its owner when it has ended, so that owners take turns by time."""
_REFERENCE_BYTES = 200
"""Of what a unit commits: a reference to its part."""
_ACCEPTED_PART = 2
"""Of what may wait: whoever has a batch has been let in, and clients that knock every second must not keep its rows
out."""
_ANY_BACKLOG = Admission(max_backlog_s=1e12)
"""Jobs of a batch or an ingestion are a few at any time, and whoever has one has been let in."""
_KEPT_MS = 400 * 86_400_000
"""From a task's end. They are forgotten when what they belong to has ended. Until then what they hold must outlive any
outage, and the longest window of a batch: a retention that users choose for what has ended has no part in it."""


@dataclass(frozen=True, slots=True)
class JobCall:
    """Which job, and for what."""

    kind: str
    id: str

    def to_unit(self) -> NewUnit:
        """The unit to submit to the documents queue; a task of it has one."""
        return NewUnit(items=1, cost=JOB_COST, payload=orjson.dumps(self))

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Inverse of the payload of `to_unit`."""
        fields = orjson.loads(payload)
        return cls(kind=fields["kind"], id=fields["id"])


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
        wakes_steps=True,
    )


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
    task_id: str, rows: Rows, settings: Settings, *, model: str, owner: str, deadline_in_ms: int | None = None
) -> Submission:
    """The task that encodes rows."""
    return Submission(
        task_id=task_id,
        queue=model,
        lane=Lane.BULK,
        owner=owner,
        units=[
            NewUnit(count, max(1, cost), UnitReference(rows.source, rows.index, first).to_payload())
            for first, count, cost in rows.units
        ],
        options=Options(),
        ttl_ms=_KEPT_MS,
        admission=Admission(
            max_backlog_s=_ACCEPTED_PART * settings.max_backlog_bulk_s,
            max_backlog_bytes=_ACCEPTED_PART * settings.max_backlog_bytes,
            max_memory_percent=settings.max_redis_memory_percent,
            vector_bytes=-(-_REFERENCE_BYTES * len(rows.units) // rows.count),
        ),
        deadline_in_ms=deadline_in_ms,
        wakes_steps=True,
    )


def submit(context: StepContext, task: Submission) -> bool:
    """Stores a task; False when there is no room for it now: `context.postponed` says until when not to try again."""
    try:
        reply = context.ledger.run(operations.submit(task))
    except (BacklogFull, StorageFull) as error:
        _log.info("%s waits: %s", task.task_id, error.code)
        context.postponed.refused(task.task_id, error.retry_after_s)
        return False
    if reply.bell_due:
        context.send_bell(task.queue)
    return True

"""The tasks of the documents queue: what a job is called, and the task that runs it. It needs no model."""

from dataclasses import dataclass
from typing import Self

import orjson

from tasks.item import Options
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask

JOB_COST = 1
"""Of any job when it is claimed, in the unit of the ledger. Workers say that they do one in a second; what took
longer is charged to its owner when it has ended, so that owners take turns by time."""
KEPT_MS = 400 * 86_400_000
"""From a task's end. They are forgotten when what they belong to has ended. Until then what they hold must outlive any
outage, and the longest window of a batch: a retention that users choose for what has ended has no part in it."""

LONGEST_PAUSE_S = 60.0
"""Between two jobs of a kind that came to nothing; the first pause is a second, each further one twice as long."""


def is_pause(now_ms: int, until_ms: int) -> bool:
    """Whether it is too early for a job.

    What is further off than the longest pause was said before the clock of Redis went back, and is none.
    """
    return now_ms < until_ms <= now_ms + LONGEST_PAUSE_S * 1000


@dataclass(frozen=True, slots=True)
class JobCall:
    """Which job, and for what."""

    kind: str
    id: str

    def to_piece(self) -> NewPiece:
        """The piece to submit to the documents queue; a task of it has one."""
        return NewPiece(items=1, cost=JOB_COST, payload=orjson.dumps(self))

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Inverse of the payload of `to_piece`."""
        fields = orjson.loads(payload)
        return cls(kind=fields["kind"], id=fields["id"])


def job_task(
    task_id: str,
    call: JobCall,
    *,
    owner: str,
    lane: Lane = Lane.BULK,
    trace: str = "",
) -> NewTask:
    """The task of a job."""
    return NewTask(
        task_id=task_id,
        queue=DOCUMENTS,
        lane=lane,
        owner=owner,
        pieces=[call.to_piece()],
        options=Options(),
        ttl_ms=KEPT_MS,
        admission=Admission(),
        wakes_steps=True,
        trace=trace,
        part=True,
    )

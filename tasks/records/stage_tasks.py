"""The tasks of the stages of jobs: what they are called, and what they carry."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import orjson

from tasks.item import Options
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tasks.records.jobs import JobRecord, Stage

JOB_COST = 1
"""Of any job of the documents queue when it is claimed; what took longer than a second is charged at its end."""
KEPT_MS = 400 * 86_400_000
"""From a task's end. A move forgets it; until then what it holds must outlive any outage."""
_TRACED = 100
"""Pages of one job that are in its trace: nobody can read one of a million spans."""
_REFERENCE_BYTES = 200
"""Of what a piece of rows commits: where its vectors are."""
_LANE = {Stage.LOAD: Lane.ONLINE, Stage.FINISH: Lane.ONLINE}
"""What is embedded is loaded before more is parsed: it takes up room."""


@dataclass(frozen=True, slots=True)
class StageCall:
    """What a task of the documents queue runs: a stage, of which job and which page (0: of none)."""

    kind: str
    job: str
    number: int
    stage: Stage

    def to_piece(self) -> NewPiece:
        """The piece to submit; a task of it has one."""
        return NewPiece(items=1, cost=JOB_COST, payload=orjson.dumps(self))

    @classmethod
    def from_payload(cls, payload: bytes) -> Self:
        """Inverse of the payload of `to_piece`."""
        fields = orjson.loads(payload)
        return cls(fields["kind"], fields["job"], fields["number"], Stage(fields["stage"]))


def stage_task(record: JobRecord, number: int, stage: Stage) -> NewTask:
    """The task of a stage that needs no model."""
    return NewTask(
        task_id=record.task_id(number, stage),
        queue=DOCUMENTS,
        lane=_LANE.get(stage, Lane.BULK),
        owner=record.owner,
        pieces=[StageCall(record.KIND, record.id, number, stage).to_piece()],
        options=Options(),
        ttl_ms=KEPT_MS,
        admission=Admission(),
        wakes_driver=True,
        trace=record.trace if number < _TRACED else "",
    )


def embed_task(record: JobRecord, number: int, pieces: Sequence[NewPiece], deadline_in_ms: int | None) -> NewTask:
    """The task that encodes the rows of a page, as bulk work."""
    rows = sum(piece.items for piece in pieces)
    return NewTask(
        task_id=record.task_id(number, Stage.EMBED),
        queue=record.model,
        lane=Lane.BULK,
        owner=record.owner,
        pieces=pieces,
        options=Options(),
        ttl_ms=KEPT_MS,
        admission=Admission(vector_bytes=-(-_REFERENCE_BYTES * len(pieces) // rows)),
        deadline_in_ms=deadline_in_ms,
        wakes_driver=True,
        trace=record.trace if number < _TRACED else "",
    )

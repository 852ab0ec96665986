"""Tasks of batches and ingestions that embed rows by reference, as bulk work, and how their tasks are submitted."""

from collections.abc import Sequence
from dataclasses import dataclass

from tasks.documents.context import StepContext
from tasks.item import Options
from tasks.ledger.submit import submit_parts
from tasks.ledger.task import Admission, Lane, NewPiece, NewTask
from tasks.records.document_jobs import KEPT_MS
from tasks.storage.row_file import RowReference

_REFERENCE_BYTES = 200
"""Of what a piece commits: a reference to its part."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that a job has written.

    Attributes:
        source, index: stored names of the lines and of their index.
        count: how many there are.
        pieces: first row, number and estimated tokens of each piece.
    """

    source: str
    index: str
    count: int
    pieces: Sequence[Sequence[int]]


def rows_task(
    task_id: str,
    rows: Rows,
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
        pieces=[
            NewPiece(count, max(1, cost), RowReference(rows.source, rows.index, first).to_payload())
            for first, count, cost in rows.pieces
        ],
        options=Options(),
        ttl_ms=KEPT_MS,
        admission=Admission(vector_bytes=-(-_REFERENCE_BYTES * len(rows.pieces) // rows.count)),
        deadline_in_ms=deadline_in_ms,
        wakes_steps=True,
        trace=trace,
        part=True,
    )


def bring_in(context: StepContext, tasks: Sequence[NewTask]) -> None:
    """Stores tasks of accepted work, those that are not there yet, whatever waits already."""
    for queue in context.ledger.run(submit_parts(tasks)):
        context.send_bell(queue)

"""The ledger tasks of a batch, as they are submitted.

Their ids follow from the batch's, so submitting one again is harmless.
"""

from collections.abc import Mapping
from typing import Any

from tasks.documents.jobs import JobCall
from tasks.ledger import DOCUMENTS, Admission, Lane, NewUnit, Options, Submission
from tasks.ledger.batches import Batch, Stage
from tasks.ledger.rows import UnitReference
from worker_config.settings import Settings

KIND = {Stage.VALIDATE: "validate_batch", Stage.ASSEMBLE: "assemble_batch"}
_REFERENCE_BYTES = 200
"""Of what a unit commits: a reference to its part."""
_ANY_BACKLOG = Admission(max_backlog_s=1e12)
"""Jobs are a few for each batch, and whoever has a batch has been let in."""


def job(batch: Batch, stage: Stage, settings: Settings) -> Submission:
    """The task of a stage that needs no model."""
    return Submission(
        task_id=batch.task_id(stage),
        model=DOCUMENTS,
        lane=Lane.BULK,
        owner=batch.owner,
        units=[JobCall(KIND[stage], batch.id).to_unit()],
        options=Options(),
        ttl_ms=_ttl_ms(settings),
        admission=_ANY_BACKLOG,
    )


def embedding(batch: Batch, found: Mapping[str, Any], settings: Settings) -> Submission:
    """The task that encodes the rows which VALIDATE `found`. It expires when the batch's window ends."""
    units, rows = found["units"], found["lines"]
    return Submission(
        task_id=batch.task_id(Stage.EMBED),
        model=found["model"],
        lane=Lane.BULK,
        owner=batch.owner,
        units=[
            NewUnit(
                items=count,
                cost=max(1, price),
                payload=UnitReference(found["source"], found["index"], first).to_payload(),
            )
            for first, count, price in units
        ],
        options=Options(),
        ttl_ms=_ttl_ms(settings),
        admission=Admission(
            max_backlog_s=settings.max_backlog_bulk_s,
            max_backlog_bytes=settings.max_backlog_bytes,
            max_memory_percent=settings.max_redis_memory_percent,
            vector_bytes=-(-_REFERENCE_BYTES * len(units) // rows),
        ),
        deadline_in_ms=max(1, batch.expires_ms - batch.now_ms),
    )


def _ttl_ms(settings: Settings) -> int:
    # They are forgotten when the batch has ended. Until then what they hold must outlive any outage.
    return round(settings.batch_ttl_s * 1000)

"""The ledger tasks of a batch, as they are submitted.

Their ids follow from the batch's, so submitting one again is harmless.
"""

from collections.abc import Mapping
from typing import Any

from tasks.documents.jobs import JobCall
from tasks.documents.submitting import job_task, rows_task
from tasks.ledger import Submission
from tasks.ledger.batches import Batch, Stage
from worker_config.settings import Settings

KIND = {Stage.VALIDATE: "validate_batch", Stage.ASSEMBLE: "assemble_batch"}


def job(batch: Batch, stage: Stage) -> Submission:
    """The task of a stage that needs no model."""
    return job_task(batch.task_id(stage), JobCall(KIND[stage], batch.id), owner=batch.owner)


def embedding(batch: Batch, found: Mapping[str, Any], settings: Settings) -> Submission:
    """The task that encodes the rows which VALIDATE `found`. It expires when the batch's window ends."""
    return rows_task(
        batch.task_id(Stage.EMBED),
        found,
        found["lines"],
        settings,
        model=found["model"],
        owner=batch.owner,
        deadline_in_ms=max(1, batch.expires_ms - batch.now_ms),
    )

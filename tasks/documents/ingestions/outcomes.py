"""Reading how a job of an ingestion ended."""

from typing import Any

import orjson

from tasks.documents.context import StepContext
from tasks.ledger import ItemError
from tasks.ledger.committed import read_committed
from tasks.ledger.ingestions import Ingestion

_NO_OUTCOME = ItemError("internal_error", "A job left no outcome.")


def outcome_of(context: StepContext, ingestion: Ingestion, name: str, number: int) -> dict[str, Any] | ItemError | None:
    """What a job returned, or why it came to nothing; None when the ledger holds no such task that has ended."""
    committed = context.ledger.run(read_committed(ingestion.task_id(name, number)))
    if committed is None or not committed.task.state.terminal:  # taken in by somebody, and submitted by a late step
        return None
    if committed.units:
        found: dict[str, Any] = orjson.loads(committed.units[0].data)
        return found
    return committed.errors.get(0, _NO_OUTCOME)

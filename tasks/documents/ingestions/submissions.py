"""The ledger tasks of an ingestion.

Their ids follow from the ingestion's and a number, so submitting one again is harmless.
"""

from collections.abc import Mapping
from typing import Any

from tasks.documents.context import StepContext
from tasks.documents.ingestions.calls import job_id
from tasks.documents.jobs import JobCall
from tasks.documents.submitting import job_task, rows_task, submit
from tasks.ledger import DOCUMENTS, Lane, Submission, operations
from tasks.ledger.ingestion_operations import Move, move_ingestion
from tasks.ledger.ingestions import Ingestion, IngestionStatus, Page, PageStage

_KIND = {"list": "list_page", "parse": "parse_page", "load": "load_pages", "finish": "finish_ingestion"}
_LANE = {"list": Lane.BULK, "parse": Lane.BULK, "load": Lane.ONLINE, "finish": Lane.ONLINE}
"""What is embedded is loaded before more is parsed: it takes up room."""
_OPEN = [status for status in IngestionStatus if not status.terminal]


def submit_job(context: StepContext, ingestion: Ingestion, name: str, number: int) -> None:
    """Submits a `list`, `parse`, `load` or `finish`, unless it is too early to ask for it again."""
    task_id, setback = ingestion.task_id(name, number), ingestion.setbacks.get(name)
    if context.postponed.waits(task_id) or (setback and ingestion.now_ms < setback.until_ms):
        return
    call = JobCall(_KIND[name], job_id(ingestion, number))
    _submit_while(
        context,
        ingestion,
        job_task(task_id, call, owner=ingestion.owner, lane=_LANE[name]),
        Move(_OPEN),
    )


def submit_embedding(context: StepContext, ingestion: Ingestion, page: Page, found: Mapping[str, Any]) -> None:
    """Submits the chunks which PARSE `found`. Ask `context.postponed` before they are read."""
    task = rows_task(
        ingestion.task_id("embed", page.number),
        found,
        found["rows"],
        context.settings,
        model=ingestion.model,
        owner=ingestion.owner,
    )
    _submit_while(context, ingestion, task, Move([IngestionStatus.IN_PROGRESS], stages={page.number: PageStage.EMBED}))


def forget(context: StepContext, ingestion: Ingestion, name: str, number: int) -> None:
    """Ends a task and removes every trace of it, if there is one."""
    model = ingestion.model if name == "embed" else DOCUMENTS
    context.ledger.run(operations.forget(model, ingestion.task_id(name, number)))


def _submit_while(context: StepContext, ingestion: Ingestion, task: Submission, still: Move) -> None:
    if submit(context, task) and not context.ledger.run(move_ingestion(ingestion.id, still))[0]:
        # It was cancelled, and tidied up, meanwhile: nobody else would end this task.
        context.ledger.run(operations.forget(task.model, task.task_id))

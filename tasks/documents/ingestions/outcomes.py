"""What a job of an ingestion comes to, as data: a change of its ingestion, and rows to be embedded.

The job itself changes nothing. What it came to stands in its task until a step has taken it in, however many workers
die in between. The change names what it expects of the ingestion, so it is made once, also if it is taken in twice.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from tasks.documents.context import StepContext
from tasks.documents.submitting import Rows, bring_in, rows_task
from tasks.ledger.cancel import forget
from tasks.ledger.read import read_result
from tasks.ledger.redis_keys import DOCUMENTS
from tasks.ledger.task import NewTask
from tasks.records.ingestion_operations import Move, move_ingestion, read_ingestion
from tasks.records.ingestions import Ingestion, PageStage

GONE = b'{"gone":true}'
"""Of a job that did nothing: its ingestion has ended, another run was faster, or something is away."""


def as_outcome(move: Move, page: int = 0, rows: Rows | None = None) -> bytes:
    """The outcome of a job: the change, and with it the embedding of the rows of a page."""
    embed = {} if rows is None else {"embed": {"page": page, "rows": rows}}
    return orjson.dumps({"move": orjson.Fragment(move.to_json()), **embed})


def take_in(context: StepContext, ingestion: Ingestion) -> Ingestion:
    """Makes the changes that jobs have left; the ingestion as it is then. What failed is not looked at.

    Jobs are forgotten after that. One whose change was not made is missed then, and so enqueued once more: it ran
    before its ingestion was as it is now, or found something away, or another change was faster.
    """
    ended = _ended(ingestion)
    if not ended:
        return ingestion
    taken = []
    for result in [context.ledger.run(read_result(task_id)) for task_id in ended]:
        outcome = result.returned() if result is not None else None
        if result is None or outcome is None:  # it failed, or another step was faster
            continue
        if "move" in outcome:
            _take(context, ingestion, outcome)
        taken.append(result.task.id)
    if not taken:
        return ingestion
    context.ledger.run(forget(DOCUMENTS, *taken))
    return context.ledger.run(read_ingestion(ingestion.id)) or ingestion


def _take(context: StepContext, ingestion: Ingestion, outcome: Mapping[str, Any]) -> None:
    # The rows first: nobody else could make their task, once the outcome is forgotten.
    embeddings = [_embedding(ingestion, **outcome["embed"])] if "embed" in outcome else []
    if embeddings:
        bring_in(context, embeddings)
    done = context.ledger.run(move_ingestion(ingestion.id, orjson.dumps(outcome["move"])))
    if embeddings and (done.status is None or done.status.terminal):  # nobody else would end this task
        context.ledger.run(forget(ingestion.model, *(task.task_id for task in embeddings)))


def _ended(ingestion: Ingestion) -> list[str]:
    """Tasks whose jobs have ended. Pages come first: a listing is soon done again, if both want the same number."""
    jobs = [("parse", page.number, page.state) for page in ingestion.pages.values() if page.stage is PageStage.PARSE]
    jobs.append(("load", ingestion.load_number - 1, ingestion.load_state))
    jobs.append(("list", ingestion.list_number, ingestion.list_state))
    return [ingestion.task_id(name, number) for name, number, state in jobs if state is not None and state.terminal]


def _embedding(ingestion: Ingestion, page: int, rows: Mapping[str, Any]) -> NewTask:
    return rows_task(
        ingestion.task_id("embed", page),
        Rows(**rows),
        model=ingestion.model,
        owner=ingestion.owner,
        trace=ingestion.trace_of(page),
    )

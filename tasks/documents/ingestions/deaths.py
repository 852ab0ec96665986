"""Jobs of an ingestion that are tried again after the deaths of their workers: `tasks.documents.deaths` decides."""

import dataclasses

from tasks.documents import deaths
from tasks.documents.context import StepContext
from tasks.documents.ingestions.calls import after
from tasks.documents.ingestions.submissions import forget
from tasks.ledger.ingestion_operations import Move, move_ingestion
from tasks.ledger.ingestion_replies import losses_field, setback_field, setback_text
from tasks.ledger.ingestions import Ingestion, IngestionStatus, Page, PageStage

_GOING_ON = (IngestionStatus.IN_PROGRESS, IngestionStatus.FINALIZING)


def again(context: StepContext, ingestion: Ingestion, name: str, number: int, found: object) -> bool:
    """Whether a `list`, `load` or `finish` that ended with `found` is tried again, after a pause."""
    losses = ingestion.losses.get(name, 0)
    if not deaths.again(found, losses) or ingestion.status not in _GOING_ON:
        return False
    field = losses_field(name)
    move = Move(
        _GOING_ON,
        equal={field: losses},
        set={field: losses + 1, setback_field(name): setback_text(after(ingestion, name, "worker"))},
    )
    if context.ledger.run(move_ingestion(ingestion.id, move))[0]:
        forget(context, ingestion, name, number)
    return True


def page_again(context: StepContext, ingestion: Ingestion, page: Page, found: object) -> bool:
    """Whether a `parse` that ended with `found` is tried again, after a pause."""
    if not deaths.again(found, page.losses):
        return False
    move = Move(
        [IngestionStatus.IN_PROGRESS],
        stages={page.number: PageStage.PARSE},
        put=[dataclasses.replace(page, losses=page.losses + 1)],
        set={setback_field("parse"): setback_text(after(ingestion, "parse", "worker"))},
    )
    if context.ledger.run(move_ingestion(ingestion.id, move))[0]:
        forget(context, ingestion, "parse", page.number)
    return True

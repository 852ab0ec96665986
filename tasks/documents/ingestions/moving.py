"""Moves that bring an ingestion further."""

from tasks.documents.context import StepContext
from tasks.ledger.ingestion_operations import Move, move_ingestion
from tasks.ledger.ingestions import Ingestion


def move_on(context: StepContext, ingestion: Ingestion, move: Move) -> bool:
    """Whether the move was made. What it makes possible is looked for soon, not a quarter of a second later.

    Not for a move that may be made again in the next round, or the rounds would never pause.
    """
    moved, _ = context.ledger.run(move_ingestion(ingestion.id, move))
    if moved:
        context.again()
    return moved

"""The step that now and then removes stored objects that nothing refers to."""

import time
from collections.abc import Callable

from tasks.documents.batches.leftovers import sweep_batches
from tasks.documents.context import StepContext
from tasks.documents.ingestions.leftovers import sweep_ingestions
from tasks.documents.sinks.parquet.garbage import sweep_datasets
from tasks.ledger.sweep import sweep

SWEEP_EVERY_S = 600.0


class Sweeping:
    """Sweeps at its first call, and again `SWEEP_EVERY_S` after a sweep that succeeded."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock()

    def __call__(self, context: StepContext) -> None:
        """Raises what `sweep` does."""
        if self._clock() < self._due:
            return
        sweep(context.storage, context.ledger)
        sweep_batches(context.storage, context.ledger)
        sweep_ingestions(context.storage, context.ledger)
        sweep_datasets(context.storage, context.ledger)
        self._due = self._clock() + SWEEP_EVERY_S

"""The sweep, now and then, in a thread of its own: batches need not wait until every name in the storage is read."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack

from tasks.documents.batches.leftovers import sweep_batches
from tasks.documents.context import StepContext
from tasks.documents.ingestions.leftovers import sweep_ingestions
from tasks.documents.sinks.parquet.garbage import sweep_datasets
from tasks.ledger.identity import NOT_OURS, adopt, id_of, is_ours
from tasks.ledger.sweep import sweep

SWEEP_EVERY_S = 600.0
SWEEP_AGAIN_S = 30.0
"""After a sweep that could not be finished."""

_log = logging.getLogger(__name__)


class Sweeping:
    """Sweeps at its first call; again `SWEEP_EVERY_S` after a sweep that succeeded, `SWEEP_AGAIN_S` after another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock()
        self._warned = False

    def __call__(self, context: StepContext) -> None:
        """Raises what `sweep` does. Where the storage is another Redis's, it says so once and deletes nothing."""
        if self._clock() < self._due:
            return
        pause_s = SWEEP_AGAIN_S
        try:
            if not self._may_sweep(context):
                return
            with ExitStack() as stack:  # each of them, also when another one raises
                for part in (sweep_datasets, sweep_ingestions, sweep_batches, sweep):
                    stack.callback(part, context.storage, context.ledger)
            pause_s = SWEEP_EVERY_S
        finally:  # counted from here: a sweep that fails may have taken longer than the pause
            self._due = self._clock() + pause_s

    def _may_sweep(self, context: StepContext) -> bool:
        ours = (
            is_ours(context.storage, context.ledger)
            if context.settings.adopt_storage is None
            else adopt(context.storage, context.ledger, context.settings.adopt_storage)
        )
        if not ours and not self._warned:
            _log.warning(NOT_OURS, id_of(context.storage))
        self._warned = not ours
        return ours

"""The thread that takes the steps."""

import logging
import threading
from collections.abc import Sequence

from tasks.documents.context import StepContext
from tasks.documents.steps import Step
from tasks.errors import Unavailable

_log = logging.getLogger(__name__)

STEP_EVERY_S = 0.5
FINISH_PATIENCE_S = 2.0


class Stepper(threading.Thread):
    """Takes all steps again and again until `finish`, whatever they raise."""

    def __init__(self, context: StepContext, steps: Sequence[Step], *, every_s: float = STEP_EVERY_S) -> None:
        super().__init__(name="stepper", daemon=True)
        self._context = context
        self._steps = steps
        self._every_s = every_s
        self._done = threading.Event()
        self._trouble: dict[Step, str] = {}

    def run(self) -> None:
        """Steps at once and then regularly."""
        while not self._done.is_set():
            self.step_all()
            self._done.wait(self._every_s)

    def step_all(self) -> None:
        """Each step once. What one raises is logged, when it is not what it raised the last time."""
        for step in self._steps:
            if self._done.is_set() or self._context.stop():
                return
            try:
                step(self._context)
            except Exception as error:  # noqa: BLE001 - a step that fails must not keep the others from theirs
                self._note(step, error.code if isinstance(error, Unavailable) else type(error).__name__)
            else:
                self._trouble.pop(step, None)

    def finish(self) -> None:
        """Ends the thread; does not wait long for a step that hangs."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)

    def _note(self, step: Step, what: str) -> None:
        if self._trouble.get(step) != what:
            _log.warning("step %s: %s; trying again", getattr(step, "__name__", type(step).__name__), what)
        self._trouble[step] = what

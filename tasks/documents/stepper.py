"""The thread that takes the steps."""

import logging
import threading
from collections.abc import Sequence

from tasks.documents.context import StepContext
from tasks.documents.steps import Step
from tasks.errors import Unavailable

_log = logging.getLogger(__name__)

STEP_EVERY_S = 0.5
SOON_S = 0.1
"""Until the next round, when a step has asked for it."""
FINISH_PATIENCE_S = 2.0


class Stepper(threading.Thread):
    """Takes all steps again and again until `finish`, whatever they raise."""

    def __init__(self, context: StepContext, steps: Sequence[Step], *, every_s: float = STEP_EVERY_S) -> None:
        super().__init__(name="stepper", daemon=True)
        self._context = context
        self._steps = steps
        self._every_s = every_s
        self._done = threading.Event()
        self._nudged = threading.Event()
        self._trouble: dict[Step, str] = {}

    def run(self) -> None:
        """Steps at once and then regularly."""
        while not self._done.is_set():
            self._nudged.clear()
            soon = self.step_all()
            self._nudged.wait(min(SOON_S, self._every_s) if soon else self._every_s)

    def nudge(self) -> None:
        """The next round at once: something has changed that a step waits for."""
        self._nudged.set()

    def step_all(self) -> bool:
        """Each step once, and whether one asks for the next round soon.

        What a step raises is logged, when it is not what it raised the last time.
        """
        soon = False
        for step in self._steps:
            if self._done.is_set() or self._context.stop():
                break
            try:
                soon = bool(step(self._context)) or soon
            except Exception as error:  # noqa: BLE001 - a step that fails must not keep the others from theirs
                self._note(step, error.code if isinstance(error, Unavailable) else type(error).__name__)
            else:
                self._trouble.pop(step, None)
        return soon

    def finish(self) -> None:
        """Ends the thread; does not wait long for a step that hangs."""
        self._done.set()
        self._nudged.set()
        self.join(FINISH_PATIENCE_S)

    def _note(self, step: Step, what: str) -> None:
        if self._trouble.get(step) != what:
            _log.warning("step %s: %s; trying again", getattr(step, "__name__", type(step).__name__), what)
        self._trouble[step] = what

"""The threads that take the steps."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tasks.documents.batches.steps import step_batches
from tasks.documents.cleanup import Sweeping
from tasks.documents.context import StepContext
from tasks.documents.ingestions.steps import IngestionSteps
from tasks.documents.ingestions.tools import TOOLS
from tasks.errors import Unavailable

# The steps that every documents worker takes: what moves batches and ingestions from stage to stage.

Step: TypeAlias = Callable[[StepContext], bool | None]
"""True: the next round should come soon. May raise: the other steps are taken all the same, and this one again in the
next round."""

STEPS: list[Step] = [step_batches, IngestionSteps(TOOLS)]

SWEEPS: list[Step] = [Sweeping()]
"""What takes as long as the storage is large: it has a thread of its own."""


_log = logging.getLogger(__name__)

STEP_EVERY_S = 0.25
"""Nobody says to a documents worker that there is something new: it takes half of this on average to begin with it."""
SOON_S = 0.1
"""Until the next round, when a step has asked for it."""
AGAIN_S = 0.02
"""Until the next round, when a step has moved something. Not at once: each round reads up to 100 batches and as many
ingestions, and several of them move at a time."""
FINISH_PATIENCE_S = 2.0


class Stepper(threading.Thread):
    """Takes all steps again and again until `finish`, whatever they raise.

    Args:
        context: for the steps; `moved` and `again` in it become the stepper's own.
        steps: to be taken one after the other.
        every_s: pause between two rounds.
        name: of the thread.
    """

    def __init__(
        self, context: StepContext, steps: Sequence[Step], *, every_s: float = STEP_EVERY_S, name: str = "stepper"
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._moves = 0
        self._in_step = self._again = False
        self._context = dataclasses.replace(context, moved=self._move, again=self._ask_again)
        self._steps = steps
        self._every_s = every_s
        self._done = threading.Event()
        self._nudged = threading.Event()
        self._trouble: dict[Step, str] = {}

    def run(self) -> None:
        """Steps at once and then regularly."""
        while not self._done.is_set():
            self._nudged.clear()
            self._again = False
            soon = self.step_all()
            pause_s = AGAIN_S if self._again else SOON_S if soon else self._every_s
            self._nudged.wait(min(pause_s, self._every_s))

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
            self._move()
            self._in_step = True
            try:
                soon = bool(step(self._context)) or soon
            except Exception as error:  # noqa: BLE001 - a step that fails must not keep the others from theirs
                self._note(step, error.code if isinstance(error, Unavailable) else type(error).__name__)
            else:
                self._trouble.pop(step, None)
            finally:
                self._in_step = False
        return soon

    @property
    def moves(self) -> int | None:
        """How often a step has moved; None between two rounds, when nothing should."""
        return self._moves if self._in_step else None

    def ask_to_finish(self) -> None:
        """No step begins any more. Returns at once."""
        self._done.set()

    def finish(self) -> None:
        """Ends the thread; does not wait long for a step that hangs."""
        self._done.set()
        self._nudged.set()
        self.join(FINISH_PATIENCE_S)

    def _ask_again(self) -> None:
        self._again = True

    def _move(self) -> None:
        self._moves += 1

    def _note(self, step: Step, what: str) -> None:
        if self._trouble.get(step) != what and not self._done.is_set():
            _log.warning("step %s: %s; trying again", getattr(step, "__name__", type(step).__name__), what)
        self._trouble[step] = what

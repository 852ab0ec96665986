"""The threads that take the steps."""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tasks.documents.batches.steps import step_batches
from tasks.documents.context import StepContext
from tasks.documents.ingestions.steps import IngestionSteps
from tasks.documents.ingestions.tools import TOOLS
from tasks.documents.sweep import StorageSweep
from tasks.errors import StorageUnavailable, Unavailable
from tasks.worker.idle_wait import Wakeup

# The steps that every documents worker takes: what moves batches and ingestions from stage to stage.

Step: TypeAlias = Callable[[StepContext], bool | None]
"""True: something waits for a moment that nobody will announce. May raise: the other steps are taken all the same, and
this one again in the next round."""

STEPS: list[Step] = [step_batches, IngestionSteps(TOOLS)]

SWEEPS: list[Step] = [StorageSweep()]
"""What takes as long as the storage is large: it has a thread of its own."""


_log = logging.getLogger(__name__)

STEP_EVERY_S = 1.0
"""Between two rounds when nobody wakes the stepper. A wake-up may be lost with a connection, and a worker may load the
model that an ingestion waits for."""
SOON_S = 0.25
"""The same, when something waits for a moment."""
AGAIN_S = 0.02
"""At least between two rounds: each reads up to 100 batches and as many ingestions, and several of them move at a
time."""
FINISH_PATIENCE_S = 2.0


class Stepper(threading.Thread):
    """Takes all steps again and again until `finish`, whatever they raise.

    Args:
        context: for the steps; `moved` and `again` in it become the stepper's own.
        steps: to be taken one after the other.
        every_s: longest pause between two rounds.
        name: of the thread.
        bell: ends a pause; None: nobody wakes it.
    """

    def __init__(
        self,
        context: StepContext,
        steps: Sequence[Step],
        *,
        every_s: float = STEP_EVERY_S,
        name: str = "stepper",
        bell: Wakeup | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._moves = 0
        self._in_step = self._again = False
        self._context = dataclasses.replace(context, moved=self._move, again=self._ask_again)
        self._steps = steps
        self._every_s = every_s
        self._bell = bell
        self._done = threading.Event()
        self._trouble: dict[Step, str] = {}
        self.storage_trouble: tuple[str, float] | None = None
        """What the storage answers to a step, for people, and since when in Unix seconds; None: nothing is wrong."""

    def run(self) -> None:
        """Steps at once, and then whenever it is woken, or after a pause."""
        while not self._done.is_set():
            self._again = False
            hears = self._bell is not None and self._bell.try_open()  # before the steps: what changes then is heard
            waits = self.step_all()
            self._done.wait(min(AGAIN_S, self._every_s))
            if not self._again:
                self._pause(min(SOON_S if waits else self._every_s, self._every_s), hears=hears)
        if self._bell is not None:
            self._bell.close()

    def _pause(self, seconds: float, *, hears: bool) -> None:
        if hears and self._bell is not None:
            self._bell.wait(seconds, self._done.is_set)
        else:
            self._done.wait(seconds)

    def step_all(self) -> bool:
        """Each step once, and whether one of them waits for a moment.

        What a step raises is logged, when it is not what it raised the last time.
        """
        waits = False
        for step in self._steps:
            if self._done.is_set() or self._context.stop():
                break
            self._move()
            self._in_step = True
            try:
                waits = bool(step(self._context)) or waits
            except Exception as error:  # noqa: BLE001 - a step that fails must not keep the others from theirs
                self._note(step, error.detail if isinstance(error, Unavailable) else type(error).__name__)
                if isinstance(error, StorageUnavailable):
                    self.storage_trouble = (error.detail, (self.storage_trouble or ("", time.time()))[1])
            else:
                if self._trouble.pop(step, None):
                    self.storage_trouble = None
            finally:
                self._in_step = False
        return waits

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
        self.join(FINISH_PATIENCE_S)

    def _ask_again(self) -> None:
        self._again = True

    def _move(self) -> None:
        self._moves += 1

    def _note(self, step: Step, what: str) -> None:
        if self._trouble.get(step) != what and not self._done.is_set():
            _log.warning("step %s waits: %s", getattr(step, "__name__", type(step).__name__), what)
        self._trouble[step] = what

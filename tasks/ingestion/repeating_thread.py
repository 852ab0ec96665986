"""A thread that does one thing again and again: the driver, the sweep."""

import logging
import threading
import time
from collections.abc import Callable

from tasks.errors import StorageUnavailable, Unavailable
from tasks.worker.idle_wait import Wakeup

_log = logging.getLogger(__name__)

PAUSE_S = 0.02
"""At least between two rounds: what comes together is done together."""
FINISH_PATIENCE_S = 2.0


class Repeating(threading.Thread):
    """Calls `work` again and again until `finish`, whatever it raises.

    Args:
        name: of the thread.
        work: one round; calls what it gets when it moves.
        every_s: longest pause between two rounds.
        bell: ends a pause; None: nobody wakes it.
    """

    def __init__(
        self, name: str, work: Callable[[Callable[[], None]], object], *, every_s: float, bell: Wakeup | None = None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._every_s, self._bell = work, every_s, bell
        self._moves, self._at_work = 0, False
        self._done = threading.Event()
        self._trouble = ""
        self.storage_trouble: tuple[str, float] | None = None
        """What the storage answers, for people, and since when in Unix seconds; None: nothing is wrong."""

    def run(self) -> None:
        """A round at once, and then whenever it is woken, or after a pause."""
        while not self._done.is_set():
            hears = self._bell is not None and self._bell.try_open()  # before the round: what changes then is heard
            self.round()
            self._done.wait(min(PAUSE_S, self._every_s))
            if hears and self._bell is not None:
                self._bell.wait(self._every_s, self._done.is_set)
            else:
                self._done.wait(self._every_s)
        if self._bell is not None:
            self._bell.close()

    def round(self) -> None:
        """One round. What it raises is logged, when it is not what it raised the last time."""
        self._move()
        self._at_work = True
        try:
            self._work(self._move)
        except Exception as error:  # noqa: BLE001 - the boundary of a thread
            self._note(error.detail if isinstance(error, Unavailable) else type(error).__name__)
            if isinstance(error, StorageUnavailable):
                self.storage_trouble = (error.detail, (self.storage_trouble or ("", time.time()))[1])
        else:
            self._trouble, self.storage_trouble = "", None
        finally:
            self._at_work = False

    @property
    def moves(self) -> int | None:
        """How often it has moved; None between two rounds, when nothing should."""
        return self._moves if self._at_work else None

    def ask_to_finish(self) -> None:
        """No round begins any more. Returns at once."""
        self._done.set()

    def finish(self) -> None:
        """Ends the thread; does not wait long for a round that hangs."""
        self._done.set()
        self.join(FINISH_PATIENCE_S)

    def _move(self) -> None:
        self._moves += 1

    def _note(self, what: str) -> None:
        if self._trouble != what and not self._done.is_set():
            _log.warning("the %s waits: %s", self.name, what)
        self._trouble = what

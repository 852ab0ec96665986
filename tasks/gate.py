"""Who may do something beside whom in one process: many together, or one alone.

A stream goes through it to touch texts: to tokenize them, or for a forward pass. A suspect (a text whose worker died)
is encoded alone: were two texts under way, an innocent one could be convicted for the other's deaths. A forward pass of
a text that does not fit into memory is repeated alone: beside others it may have failed for the memory that they took.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WAITING_EVERY_S = 0.1
CROWDED_S = 0.1
"""So long after two were inside at once, nobody counts as alone: the other one is about to come back. A pass on all
threads beside another one is slower than both on their own: with two callers, 220 queries/s instead of 262."""


def nothing() -> None:
    """The hook that does nothing."""


class Gate:
    """A lock for many or for one; a thread that wants to be alone goes before those that come later.

    Args:
        single: nobody else is there, so that everybody is alone.
        clock: in seconds.
    """

    def __init__(self, *, single: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.single = single
        self._clock = clock
        self._crowded_at = float("-inf")
        self._changed = threading.Condition()
        self._inside = 0
        self._wants_alone = 0
        self._alone = False

    @contextmanager
    def beside_others(self, waiting: Callable[[], None] = nothing) -> Iterator[bool]:
        """Waits until nobody is alone or wants to be; meanwhile `waiting` is called ten times a second.

        Gives whether nobody else is there, nor was a moment ago (`CROWDED_S`). Of all who are inside at the same time,
        one at most is told so.
        """
        with self._changed:
            while not self._changed.wait_for(lambda: not self._alone and not self._wants_alone, WAITING_EVERY_S):
                waiting()
            self._note_crowd()
            nobody = not self._inside and self._clock() - self._crowded_at > CROWDED_S
            self._inside += 1
        try:
            yield nobody
        finally:
            with self._changed:
                self._inside -= 1
                self._note_crowd()
                self._changed.notify_all()

    def _note_crowd(self) -> None:
        if self._inside:
            self._crowded_at = self._clock()

    @contextmanager
    def alone(self, waiting: Callable[[], None] = nothing) -> Iterator[None]:
        """Waits until everybody else has left, as `beside_others`. Not to be entered from within."""
        with self._changed:
            self._wants_alone += 1
            while not self._changed.wait_for(lambda: not self._alone and not self._inside, WAITING_EVERY_S):
                waiting()
            self._wants_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


ALONE = Gate(single=True)
"""For a caller without company."""


@contextmanager
def accompanied() -> Iterator[Gate]:
    """A gate for a caller who is to be treated as one of several: somebody is inside all the time."""
    gate = Gate(single=True)
    with gate.beside_others():
        yield gate

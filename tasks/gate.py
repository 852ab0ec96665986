"""Who may do something beside whom in one process: many together, or one alone.

A stream goes through it to touch texts: to tokenize them, or for a forward pass. A suspect (a text whose worker died)
is encoded alone: were two texts under way, an innocent one could be convicted for the other's deaths. A forward pass of
a text that does not fit into memory is repeated alone: beside others it may have failed for the memory that they took.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WAITING_EVERY_S = 0.1


def nothing() -> None:
    """The hook that does nothing."""


class Gate:
    """A lock for many or for one; a thread that wants to be alone goes before those that come later.

    Args:
        single: nobody else is there, so that everybody is alone.
    """

    def __init__(self, *, single: bool) -> None:
        self.single = single
        self._changed = threading.Condition()
        self._inside = 0
        self._wants_alone = 0
        self._alone = False

    @contextmanager
    def beside_others(self, waiting: Callable[[], None] = nothing) -> Iterator[None]:
        """Waits until nobody is alone or wants to be; meanwhile `waiting` is called ten times a second."""
        with self._changed:
            while not self._changed.wait_for(lambda: not self._alone and not self._wants_alone, WAITING_EVERY_S):
                waiting()
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

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

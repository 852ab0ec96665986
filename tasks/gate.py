"""Who may work beside whom in one process: claims of several streams together, or one claim alone.

A claim of a suspect (a text whose worker died) must be alone: were two of them under way, an innocent one could be
convicted for the other's deaths.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """A lock for many or for one; whoever wants to be alone goes before those that come later.

    Args:
        single: there is one stream only, so that every claim is alone.
    """

    def __init__(self, *, single: bool) -> None:
        self.single = single
        self._changed = threading.Condition()
        self._inside = 0
        self._wants_alone = 0
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[None]:
        """Waits until nobody is alone or wants to be."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._wants_alone)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until everybody else has left. Not to be entered from within."""
        with self._changed:
            self._wants_alone += 1
            self._changed.wait_for(lambda: not self._alone and not self._inside)
            self._wants_alone -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

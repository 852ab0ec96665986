"""When the streams of a process encode suspects: texts whose worker died.

One runs at a time, and nothing else in the process meanwhile: were two texts under way, an innocent one could be
convicted for the other's deaths. The others stand still for it between two passes, with their claims in hand, so it has
a bounded share of the time. A claim that dies with it while it stands still is not to blame, and the ledger knows.
"""

import threading
import time
from collections.abc import Callable

from tasks.gate import Gate

SHARE = 4
"""While other work waits, suspects have one part in so many of the time."""
TURN_S = 0.1
"""So long suspects are taken one after the other before the others go on. Urgent texts wait for it."""
PAUSE_S = 1.0
"""After a turn in which none could be done: its rows are in a storage that is away."""


class Suspects:
    """Turns of suspects in one process; its streams share this.

    Args:
        passes: what every stream enters to touch a text.
        clock: in seconds.
    """

    def __init__(self, passes: Gate, clock: Callable[[], float] = time.monotonic) -> None:
        self._passes = passes
        self._clock = clock
        self._taken = threading.Lock()
        self._next = self._not_before = float("-inf")

    def turn(self, do_one: Callable[[], bool], *, idle: bool) -> bool:
        """Does some suspects, alone, if it is their turn and no other stream is at it; whether any was done.

        Args:
            do_one: claims one and does it; False when there was none or it could not be done.
            idle: no other work waits, so that they need not share the time.
        """
        if not self._taken.acquire(blocking=False):
            return False
        try:
            began = self._clock()
            if began < (self._not_before if idle else self._next):
                return False
            done = 0
            with self._passes.alone():
                until = self._clock() + TURN_S
                while do_one():
                    done += 1
                    if self._clock() >= until:
                        break
            now = self._clock()
            self._not_before = now if done else now + PAUSE_S
            self._next = max(self._not_before, now + (SHARE - 1) * (now - began))
            return done > 0
        finally:
            self._taken.release()

"""The thread of a worker process in which it gets ready and works. Celery's own thread only waits for it.

A slice begins when a bell is heard, and also without one: what wakes an idle worker must not depend on a message that
a full Redis refuses, or that a broker which is away never gets.
"""

import threading
from collections.abc import Callable

FINISH_PATIENCE_S = 14.0
"""A stop ends a slice within a forward pass. Just below the time after which the parent kills this process."""


class Slices(threading.Thread):
    """Runs slices, one at a time, until `finish`.

    Args:
        get_ready: called once, before the first slice.
        run_slice: one slice; must not raise.
    """

    def __init__(self, get_ready: Callable[[], None], run_slice: Callable[[], None]) -> None:
        super().__init__(name="slices", daemon=True)
        self._get_ready = get_ready
        self._run_slice = run_slice
        self._turn = threading.Condition()
        self._wanted = False
        self._ended = 0
        self._ready = threading.Event()
        self._finished = False

    def run(self) -> None:
        """What the thread does."""
        self._get_ready()
        self._ready.set()
        while self._next():
            self._run_slice()
            with self._turn:
                self._ended += 1
                self._turn.notify_all()

    def wait_ready(self) -> None:
        """Returns when the process is ready."""
        self._ready.wait()

    def want(self) -> None:
        """One more slice, after the one that may be running; returns at once."""
        with self._turn:
            self._wanted = True
            self._turn.notify_all()

    def hear(self) -> None:
        """A bell: one more slice is wanted. Returns when the slice that runs, or else the next one, has ended."""
        with self._turn:
            at = self._ended
        self.want()
        with self._turn:
            self._turn.wait_for(lambda: self._ended > at or self._finished)

    def finish(self) -> None:
        """No slice begins any more. Waits for the one that runs, which ends because this process was told to stop."""
        with self._turn:
            self._finished = True
            self._turn.notify_all()
        self.join(FINISH_PATIENCE_S)

    def _next(self) -> bool:
        with self._turn:
            self._turn.wait_for(lambda: self._wanted or self._finished)
            self._wanted = False
            return not self._finished

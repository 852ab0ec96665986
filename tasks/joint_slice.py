"""A slice of all streams of a process: it is over when every stream has ended the claim that it took in time.

One claim may last for minutes (a row of a batch with thousands of texts), and Celery begins the next slice with all
streams at once: the others go on meanwhile, with small claims.
"""

import threading
import time


class JointSlice:
    """What the streams share. `streams`: how many take part."""

    def __init__(self, streams: int = 1) -> None:
        self._lock = threading.Lock()
        self._within = streams

    def ended(self) -> None:
        """A stream has no claim any more that it took in time."""
        with self._lock:
            self._within -= 1

    @property
    def over(self) -> bool:
        """Whether no stream has."""
        return self._within <= 0


class Part:
    """One stream's part of a slice of `slice_s` seconds, which begins now."""

    def __init__(self, together: JointSlice, slice_s: float) -> None:
        self._together = together
        self._until = time.monotonic() + slice_s
        self._ended = False

    @property
    def left_s(self) -> float:
        """Below 0 when the stream goes on for the others' sake."""
        return self._until - time.monotonic()

    def goes_on(self) -> bool:
        """Whether the stream may take another claim; not to be asked while it holds one."""
        if self.left_s > 0:
            return True
        self.end()
        return not self._together.over

    def end(self) -> None:
        """The stream's time is over, or it leaves."""
        if not self._ended:
            self._ended = True
            self._together.ended()

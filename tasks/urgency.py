"""Whether urgent texts come at all, as the streams of one process have seen."""

import time
from collections.abc import Callable

QUIET_AFTER_S = 10.0
"""Without an urgent text. Whoever asks once a second is served as fast as whoever asks a hundred times."""


class Urgency:
    """When the last urgent text was taken. Any thread may call; before the first one it is quiet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None

    def seen(self) -> None:
        """A claim of urgent texts was taken."""
        self._last = self._clock()

    @property
    def expected(self) -> bool:
        """Whether another one is likely."""
        return self._last is not None and self._clock() - self._last < QUIET_AFTER_S

"""By how much the event loop of this process is late: 50 ms are a defect."""

import asyncio
import time
from collections.abc import Callable

TICK_S = 0.025
"""A hundred ticks a second took 1 % of a core from the model on the same machine."""
_KEPT = 0.9
"""Share of a stall that is kept per tick: a third is left after a quarter of a second."""


class StallProbe:
    """Measures how long the event loop was kept from running: by how much each tick comes late.

    Args:
        observe: called with the seconds each tick came late.
        clock: seconds that only grow.
    """

    def __init__(self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._observe = observe
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._since_taken_s = 0.0
        self.longest_s = 0.0
        """Since the start."""
        self.recent_s = 0.0
        """The last one, or what is left of a longer one before it."""

    def start(self) -> None:
        """Begins to tick on the running loop."""
        self._due = self._clock() + TICK_S
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Ends the ticking."""
        if self._timer is not None:
            self._timer.cancel()

    def take_s(self) -> float:
        """The longest stall since the last call, in seconds."""
        taken, self._since_taken_s = self._since_taken_s, 0.0
        return taken

    def _tick(self) -> None:
        late_s = max(0.0, self._clock() - self._due)
        self.longest_s = max(self.longest_s, late_s)
        self.recent_s = max(late_s, self.recent_s * _KEPT)
        self._since_taken_s = max(self._since_taken_s, late_s)
        self._observe(late_s)
        self.start()

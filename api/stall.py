"""The stall probe: how long the event loop was kept from running. More than 50 ms is a defect."""

import asyncio
import time
from collections.abc import Callable

TICK_S = 0.025
"""A hundred ticks a second took 1 % of a core from the model on the same machine."""
_KEPT = 0.9
"""Of a stall per tick: it is a third after a quarter of a second."""


class StallProbe:
    """A ticker that measures by how much each tick comes late.

    Args:
        observe: called with the seconds each tick came late.
    """

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._since_taken_s = 0.0
        self.longest_s = 0.0
        """Since the start."""
        self.recent_s = 0.0
        """The last one, or what is left of a longer one before it."""

    def start(self) -> None:
        """Begins to tick on the running loop."""
        self._due = time.monotonic() + TICK_S
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
        late_s = max(0.0, time.monotonic() - self._due)
        self.longest_s = max(self.longest_s, late_s)
        self.recent_s = max(late_s, self.recent_s * _KEPT)
        self._since_taken_s = max(self._since_taken_s, late_s)
        self._observe(late_s)
        self.start()

"""When a role that died is started again."""

from dataclasses import dataclass

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
HEALTHY_AFTER_S = 60.0
"""A role that lived this long was well: its next death counts as the first again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay before the next start, in seconds; 0 before the first one."""

    delay_s: float = 0.0

    def after_death(self, lived_s: float) -> "Backoff":
        """The next delay, given how long the process had lived."""
        if self.delay_s == 0 or lived_s >= HEALTHY_AFTER_S:
            return Backoff(FIRST_DELAY_S)
        return Backoff(min(2 * self.delay_s, LONGEST_DELAY_S))

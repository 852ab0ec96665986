"""What was refused for lack of room, and how long nobody need ask again."""

import time
from collections.abc import Callable

MAX_POSTPONE_S = 30.0
"""Room may come earlier than the refusal said: another worker joins, another batch is cancelled."""


class Postponed:
    """Names, each until a time of its own. Of one process, for one thread; holds no more than was refused lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def waits(self, name: str) -> bool:
        """Whether it is too early to ask again for what this names."""
        return self._clock() < self._until.get(name, 0.0)

    def refused(self, name: str, retry_after_s: float | None) -> None:
        """It was asked for and refused; `retry_after_s` is what the refusal said."""
        now = self._clock()
        self._until = {known: until for known, until in self._until.items() if until > now}
        self._until[name] = now + min(retry_after_s or 1.0, MAX_POSTPONE_S)

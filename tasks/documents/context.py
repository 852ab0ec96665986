"""What jobs and steps get to work with."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.ledger import Ledger
from tasks.storage.storage import Storage
from tasks.storage.vector_part import fence
from worker_config.settings import Settings

# What was refused for lack of room, and how long nobody need ask again.

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


@dataclass(frozen=True, slots=True)
class JobContext:
    """What one run of a job may use.

    Attributes:
        token: of the claim that it runs under; whatever the job writes carries its `fence` in the name.
        progress: to be called once a second or so. It raises the worker's `Stopping` when a stop was asked for; let it
            pass, the job will be run again. A job that has not called it for five minutes hangs: its process is ended.
        stop: whether a stop was asked for, without raising.
    """

    ledger: Ledger
    storage: Storage
    settings: Settings
    token: str
    progress: Callable[[], None]
    stop: Callable[[], bool]

    @property
    def fence(self) -> str:
        """16 hexadecimal digits that no other run of this or any job has."""
        return fence(self.token)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What steps may use.

    Attributes:
        ring: sends a bell for a queue, where SUBMIT said so. Never raises.
        stop: whether a stop was asked for: leave, the next documents worker goes on.
        moved: to be called between two calls that may take long. A step that has not called it for five minutes hangs:
            its process is ended.
        again: asks for the next round soon: something was moved, and more may be possible now.
        postponed: what the ledger had no room for the last time.
    """

    ledger: Ledger
    storage: Storage
    settings: Settings
    ring: Callable[[str], None]
    stop: Callable[[], bool]
    moved: Callable[[], None] = lambda: None
    again: Callable[[], None] = lambda: None
    postponed: Postponed = field(default_factory=Postponed)

"""What jobs and steps get to work with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.documents.postponed import Postponed
from tasks.ledger import Ledger
from tasks.ledger.fence import fence
from tasks.ledger.storage import Storage
from worker_config.settings import Settings


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

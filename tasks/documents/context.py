"""What jobs and steps get to work with."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tasks.documents.sources.source import FULL_PAGE, PageLimits
from tasks.ledger.client import Ledger
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
        self._until = {waiting: until for waiting, until in self._until.items() if until > now}
        self._until[name] = now + min(retry_after_s or 1.0, MAX_POSTPONE_S)


@dataclass(frozen=True, slots=True)
class Pace:
    """How much of an ingestion is done at a time.

    Attributes:
        page: when a page is full.
        listing_pages, listing_s: a listing ends with so many pages, or after so many seconds, and leaves the rest to
            the next one: parsing waits in the same queue.
        parsing_s: after so many seconds PARSE leaves the rest of its page to another page: other jobs wait, and each of
            64 files may take a while.
        waiting: pages that are listed and not begun. Totals are known early, and Redis holds 30 bytes for each.
        worked_on: pages of one ingestion that are parsed or embedded at the same time.
        in_flight: pages that are begun and not closed: those of little text wait for each other, so that they are
            loaded together.
        load_chunks, load_pages, load_every_ms: a load begins with so many chunks or pages, so long after the one
            before, or when nothing else is under way. Each makes one part of a dataset, and a million documents in
            parts of a hundred are slow to write and to read.
        load_most_chunks: of a load with more than one page.
    """

    page: PageLimits = FULL_PAGE
    listing_pages: int = 16
    listing_s: float = 2.0
    parsing_s: float = 30.0
    waiting: int = 20_000
    worked_on: int = 8
    in_flight: int = 64
    load_chunks: int = 8_192
    load_pages: int = 48
    load_every_ms: int = 10_000
    load_most_chunks: int = 32_768


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
    pace: Pace = Pace()

    @property
    def fence(self) -> str:
        """16 hexadecimal digits that no other run of this or any job has."""
        return fence(self.token)


@dataclass(frozen=True, slots=True)
class StepContext:
    """What steps may use.

    Attributes:
        send_bell: of a queue for which a script said that one is due. Never raises.
        stop: whether a stop was asked for: leave, the next documents worker goes on.
        moved: to be called between two calls that may take long. A step that has not called it for five minutes hangs:
            its process is ended.
        again: asks for the next round at once: something was moved, and more may be possible now.
        postponed: what the ledger had no room for the last time.
    """

    ledger: Ledger
    storage: Storage
    settings: Settings
    send_bell: Callable[[str], None]
    stop: Callable[[], bool]
    moved: Callable[[], None] = lambda: None
    again: Callable[[], None] = lambda: None
    postponed: Postponed = field(default_factory=Postponed)
    pace: Pace = Pace()

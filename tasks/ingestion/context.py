"""What a stage gets to work with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.ingestion.sources.page import FULL_PAGE, PageLimits
from tasks.ledger.client import Ledger
from tasks.records.jobs import Job
from tasks.storage.storage import Storage
from tasks.storage.vectors_file import fence
from worker_config.settings import Settings


@dataclass(frozen=True, slots=True)
class Pace:
    """How much a stage does in one turn: others wait in the same queue.

    Attributes:
        page: when a page is full.
        listing_pages, listing_s: LIST ends with so many pages, or after so many seconds, and leaves the rest to the
            next one.
        parsing_s: after so many seconds PARSE leaves the rest of its page to another page: each of 64 files may take a
            while.
    """

    page: PageLimits = FULL_PAGE
    listing_pages: int = 16
    listing_s: float = 2.0
    parsing_s: float = 3.0


USUAL_PACE = Pace()


@dataclass(frozen=True, slots=True)
class StageContext:
    """What one run of a stage may use.

    Attributes:
        job: as it was when the run began.
        number: of its page; 0: of none.
        token: of the claim that it runs under; whatever it writes carries its `fence` in the name.
        progress: to be called once a second or so. It raises the worker's `Stopping` when a stop was asked for; let it
            pass, the stage will be run again. One that has not called it for five minutes hangs: its process is ended.
    """

    ledger: Ledger
    storage: Storage
    settings: Settings
    job: Job[Any]
    number: int
    token: str
    progress: Callable[[], None]
    pace: Pace = USUAL_PACE

    def name(self, what: str) -> str:
        """The name of an object that no other run of this or any stage has."""
        return f"{self.job.record.folder}{self.number}.{what}.{fence(self.token)}"

"""The sweep of purged owners: removes what they have, a little in each round, until their account is empty.

Each step may be repeated, and may be the last of its process. The mark of the owner lets nothing new come.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tasks.datasets.places import Datasets
from tasks.errors import EmbedqError, RedisUnavailable
from tasks.ledger.cancel import forget
from tasks.ledger.client import Ledger
from tasks.ledger.read import list_tasks
from tasks.records import files, store
from tasks.records.api_keys import GONE, PURGE, Mark
from tasks.records.batches import BatchRecord, read_batches
from tasks.records.ingestions import IngestionRecord, read_ingestions
from tasks.records.jobs import Job, deleted_of, list_jobs
from tasks.records.moves import delete_job
from tasks.records.store import Order, ReadRecord, left_of
from tasks.storage.storage import Storage

_log = logging.getLogger(__name__)

RARELY_S = 600.0
"""Between two looks at all purged owners, and at what could not be deleted."""
_AT_ONCE = 100
_LATE_MS = 7 * 86_400_000
"""So long a worker may have stood still, and write then."""


class Stopped(Exception):
    """Another Redis may sweep the storage by now: this round deletes nothing any more."""


class Attempts:
    """Deletions that may fail, each in nobody's way. The log names the first that failed in ten minutes.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._quiet_until = clock, clock()

    def __call__(self, what: str, delete: Callable[[], object]) -> bool:
        """Whether it could be done.

        Raises:
            RedisUnavailable, Stopped: nothing can be done now.
        """
        try:
            delete()
        except (RedisUnavailable, Stopped):
            raise
        except Exception as error:  # noqa: BLE001 - one object must not keep all others
            if self._clock() >= self._quiet_until:
                self._quiet_until = self._clock() + RARELY_S
                why = error.detail if isinstance(error, EmbedqError) else type(error).__name__
                _log.warning("%s could not be deleted: %s", what, why)
            return False
        return True


@dataclass
class OwnerSweep:
    """One round. `go_on` raises `Stopped` where nothing may be deleted.

    `open_datasets`: None where this server has none. Raises `Invalid` where they cannot be opened here.
    """

    storage: Storage
    open_datasets: Callable[[], Datasets | None]
    ledger: Ledger
    go_on: Callable[[], object] = lambda: None
    attempt: Attempts = field(default_factory=Attempts)

    def sweep(self, now_ms: int) -> None:
        """Removes some of what purged owners have.

        Raises:
            RedisUnavailable, Stopped: a later sweep does the rest.
        """
        for mark in self.ledger.run(store.listed(Mark, PURGE, limit=_AT_ONCE, order=Order.ANY)).records:
            self.attempt(f"what the purged owner {mark.id} has", partial(self._sweep, mark, now_ms))

    def sweep_late(self, now_ms: int) -> None:
        """Removes what a worker that stood still has written since for owners who had nothing any more.

        Raises:
            SinkUnavailable, Invalid, RedisUnavailable, Stopped: a later sweep does the rest.
        """
        datasets = self.open_datasets()
        have_datasets = set(datasets.owners()) if datasets else set()
        for mark in self._gone():
            self.go_on()
            if datasets and mark.owner in have_datasets:
                self.attempt(f"a dataset of the purged owner {mark.owner}", partial(datasets.purge, mark.owner))
            if mark.swept is not None and now_ms - mark.swept * 1000 < _LATE_MS:
                self.attempt(f"{mark.owner}/", partial(self.storage.delete, f"{mark.owner}/", self.go_on))

    def _sweep(self, read: ReadRecord[Mark], now_ms: int) -> None:
        mark = read.record
        if mark is None:  # of another version, which sweeps it
            return
        self._delete_jobs(mark.owner)
        self._sweep_jobs(mark.owner)
        for task in self.ledger.run(list_tasks(mark.owner, limit=_AT_ONCE))[0]:
            self.ledger.run(forget(task.queue, task.id))  # one that is not listed ends when a worker meets it
        self._delete_files(mark.owner)
        datasets = self.open_datasets()
        if datasets is not None:
            self.go_on()
            datasets.purge(mark.owner)
        if self.ledger.run(left_of(mark.owner)):
            return
        self.storage.delete(f"{mark.owner}/", self.go_on)
        # Or somebody has changed it: later.
        self.ledger.run(store.change(read, mark.model_copy(update={"swept": now_ms / 1000})))

    def _delete_jobs(self, owner: str) -> None:
        """The driver ends those that are open."""
        batches = self.ledger.run(list_jobs(BatchRecord, owner, after=None, limit=_AT_ONCE))[0]
        ingestions = self.ledger.run(list_jobs(IngestionRecord, owner, after=None, limit=_AT_ONCE))[0]
        jobs: list[Job[Any]] = [*self.ledger.run(read_batches(batches)), *self.ledger.run(read_ingestions(ingestions))]
        for job in jobs:
            move = delete_job(job)
            if move is not None:
                self.ledger.run(move.operation())

    def _sweep_jobs(self, owner: str) -> None:
        for kind in (BatchRecord, IngestionRecord):
            for job_id in self.ledger.run(list_jobs(kind, deleted_of(owner), after=None, limit=_AT_ONCE))[0]:
                self.storage.delete(f"{owner}/{job_id}/", self.go_on)
                self.ledger.run(store.remove(kind, job_id))

    def _delete_files(self, owner: str) -> None:
        for of in (owner, files.uploads_of(owner)):
            for one in self.ledger.run(store.listed(files.FileRecord, of, limit=_AT_ONCE)).records:
                self.go_on()
                if one.record is not None:
                    self.storage.delete(one.record.stored)  # before the record, which is what leads to it
                self.ledger.run(files.delete_file(one.id))

    def _gone(self) -> Iterator[Mark]:
        after, more = "", True
        while more:
            page = self.ledger.run(store.listed(Mark, GONE, after=after))
            yield from (one.record for one in page.records if one.record is not None)
            more, after = page.more, page.records[-1].id if page.records else ""

"""What datasets hold, as the web tier reads it: every call in one of a few threads."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeAlias, TypeVar

from api.async_storage import AsyncStorage
from tasks.datasets.contents import Contents, DatasetGone
from tasks.datasets.places import Datasets, open_datasets
from tasks.errors import Invalid, NotFound, Overloaded, SinkUnavailable
from tasks.ledger.client import spread
from tasks.storage.storage import Storage
from worker_config.settings import Settings

T = TypeVar("T")
Stopping: TypeAlias = Callable[[], bool]
"""Whether nobody waits for the answer any more."""

_THREADS = 2
"""More would take the cores from the queries of everybody."""
_SHORT_THREADS = 8
"""For what reads no vectors."""
_MAX_ASKED = 6
"""Databases of requests that are asked at once: fewer than threads, as one that is slow keeps its thread."""
_SOON_S = 10.0
"""That a caller waits for such a database."""
_CHANGING_THREADS = 2
_PATIENCE_S = 10.0
"""That a change waits for a load that is writing."""
_MAX_READS = 64
"""That run or wait."""
_RETRY_AFTER_S = 5


class AsyncDatasets:
    """The datasets of this server. Vectors in memory belong to this process alone.

    Args:
        storage: has them, where EMBEDQ_DATASETS names no other place.
        settings: of this server.
    """

    def __init__(self, storage: AsyncStorage, settings: Settings) -> None:
        self._storage = storage
        self._settings = settings
        self._datasets: Datasets | None = None
        self._making = threading.Lock()
        # Not the threads of the storage: a search computes for as long as a dataset is large, and uploads would wait.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="datasets")
        self._short = ThreadPoolExecutor(_SHORT_THREADS, thread_name_prefix="datasets_short")
        self._changes = ThreadPoolExecutor(_CHANGING_THREADS, thread_name_prefix="datasets_changes")
        self._reads: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._stopping = False

    async def run(self, function: Callable[[Datasets], T]) -> T:
        """What `function` makes of the datasets, soon.

        Raises:
            Invalid: nothing says where they are.
            SinkUnavailable, StorageUnavailable: they cannot be reached now.
        """
        return await self._run(self._short, function)

    async def ask(self, owner: str, function: Callable[[Datasets], T]) -> T | None:
        """What `function` finds in a database that the owner's request names; None: it does not answer soon.

        Raises:
            Overloaded: too many of them, or of this owner's, have not answered yet, whether somebody waits or not.
            As `run`.
        """

        async def asked() -> T:
            with _place(self._asked, _MAX_ASKED, owner):
                return await self.run(function)

        try:
            async with asyncio.timeout(_SOON_S):
                return await asyncio.shield(asked())  # its place is free when its thread is
        except TimeoutError:
            return None

    async def delete(self, owner: str, name: str) -> bool:
        """Deletes a dataset; whether there was one.

        Raises:
            SinkUnavailable: it may be there still; a load has it, or the place cannot be reached.
            Invalid: nothing says where datasets are, or it cannot be deleted.
        """
        until = time.monotonic() + _PATIENCE_S

        def progress() -> None:
            if self._stopping or time.monotonic() > until:
                raise SinkUnavailable("The dataset is being loaded; try again.", retry_after_s=_RETRY_AFTER_S)

        return await self._run(self._changes, lambda datasets: datasets.delete(owner, name, progress))

    async def held_bytes(self, owner: str) -> int:
        """Of all datasets of an owner, on the disk; 0 where this server has none. Raises `SinkUnavailable`."""
        try:
            return await self.run(lambda datasets: datasets.held_bytes(owner))
        except Invalid:
            return 0

    async def read(
        self, owner: str, opened: Callable[[Datasets], Contents], function: Callable[[Contents, Stopping], T]
    ) -> T:
        """What `function` makes of a dataset, in a thread. Cancelled, it ends at its next look at `Stopping`.

        Raises:
            NotFound: there is no such dataset.
            SinkUnavailable, Invalid: it cannot be read now, or never.
            NotReady: the process stops.
            Overloaded: too many calls, or too many of this owner, wait for a thread.
        """
        left = threading.Event()

        def call(datasets: Datasets) -> T:
            with closing(opened(datasets)) as contents:
                return function(contents, lambda: left.is_set() or self._stopping)

        with _place(self._reads, _MAX_READS, owner):
            try:
                return await self._run(self._threads, call)
            except DatasetGone:
                raise dataset_unknown() from None
            finally:
                left.set()

    def forget(self, owners: AbstractSet[str]) -> None:
        """Drops what is kept of the datasets of these owners."""
        if self._datasets is not None:
            self._datasets.forget(owners)

    def stop(self) -> None:
        """Ends what runs and what waits, at its next look, so that the process need not wait for it."""
        self._stopping = True

    async def _run(self, threads: ThreadPoolExecutor, function: Callable[[Datasets], T]) -> T:
        if not self._settings.datasets:  # a disk that is away has no empty list of datasets
            await self._storage.run(Storage.require)
        return await asyncio.get_running_loop().run_in_executor(threads, lambda: function(self._opened()))

    def _opened(self) -> Datasets:
        with self._making:
            self._datasets = self._datasets or open_datasets(self._settings, self._settings.search_bytes)
        return self._datasets


@contextmanager
def _place(taken: Counter[str], most: int, owner: str) -> Iterator[None]:
    """One of so many. An owner gets half of them, so that there is room for others. Raises `Overloaded`."""
    if taken.total() >= most or taken[owner] >= most // 2:
        raise Overloaded(
            "Too many reads of datasets wait here; try again shortly.", retry_after_s=spread(_RETRY_AFTER_S)
        )
    taken[owner] += 1
    try:
        yield
    finally:
        taken[owner] -= 1
        taken += Counter()  # without the zeros


def dataset_unknown() -> NotFound:
    """The caller has no dataset of this name."""
    return NotFound(
        "dataset_not_found",
        "You have no dataset of this name. GET /v1/datasets lists yours; a table of PostgreSQL is connection:table.",
        param="name",
    )

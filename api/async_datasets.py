"""What datasets hold, as the web tier reads it: every call in one of a few threads; the first one imports pyarrow."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from api.async_storage import AsyncStorage
from tasks.errors import NotFound, NotReady, NotStored, Overloaded
from tasks.ledger.client import spread
from tasks.records import datasets
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage

if TYPE_CHECKING:
    from tasks.search.contents import Contents
    from tasks.search.parts import PartReader

T = TypeVar("T")

_THREADS = 2
"""More would take the cores from the queries of everybody."""
_MAX_READS = 64
"""That run or wait. An owner gets half of them, so that there is room for others."""
_RETRY_AFTER_S = 5
_TRIES = 4
"""So often a dataset that changes all the time is read anew."""


class AsyncDatasets:
    """Reads the datasets of callers. Its vectors in memory belong to this process alone.

    Args:
        storage: where they are.
        max_bytes: of what is kept in memory of all datasets together.
    """

    def __init__(self, storage: AsyncStorage, max_bytes: int) -> None:
        self._storage = storage
        self._max_bytes = max_bytes
        self.reader: PartReader | None = None
        self._making = threading.Lock()
        # Not the threads of the storage: a search computes for as long as a dataset is large, and uploads would wait.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="datasets")
        self._reads: Counter[str] = Counter()
        self._stopping = False

    async def present(self, owner: str, name: str) -> Catalog:
        """The present version of a dataset that exists.

        Raises:
            NotFound: there is none.
            StorageUnavailable: it cannot be known.
        """
        if not datasets.is_dataset_name(name):
            raise dataset_unknown()
        catalog = (await self._storage.run(datasets.present, owner, name)).catalog
        if not catalog.exists:
            raise dataset_unknown()
        return catalog

    async def read(self, owner: str, name: str, function: "Callable[[Contents], T]") -> T:
        """What `function` makes of the present version of a dataset, in a thread. Cancelled, it ends at its next read.

        If parts are gone, because the dataset was replaced and swept meanwhile, it is called for the next version.

        Raises:
            NotFound, StorageUnavailable: as `present`.
            NotStored: a part is not in the storage, or damaged.
            NotReady: pyarrow is not installed here, or the process stops.
            Overloaded: too many calls, or too many of this owner, wait for a thread.
        """
        catalog = await self.present(owner, name)
        for _ in range(_TRIES):
            try:
                with self._place(owner):
                    return await self._run(catalog, function)
            except NotStored as error:
                before, catalog, gone = catalog, await self.present(owner, name), error
                if catalog == before:
                    break
        raise gone

    def forget(self, owners: AbstractSet[str]) -> None:
        """Drops what is kept of the datasets of these owners."""
        if self.reader is not None:
            self.reader.forget(owners)

    def stop(self) -> None:
        """Ends what runs and what waits, at its next read, so that the process need not wait for it."""
        self._stopping = True

    @contextmanager
    def _place(self, owner: str) -> Iterator[None]:
        if self._reads.total() >= _MAX_READS or self._reads[owner] >= _MAX_READS // 2:
            raise Overloaded("Too many searches wait here; try again shortly.", retry_after_s=spread(_RETRY_AFTER_S))
        self._reads[owner] += 1
        try:
            yield
        finally:
            self._reads[owner] -= 1
            self._reads += Counter()  # without the zeros

    async def _run(self, catalog: Catalog, function: "Callable[[Contents], T]") -> T:
        storage = await self._storage.open()
        left = threading.Event()

        def call() -> T:
            return function(self._contents(storage, catalog, lambda: left.is_set() or self._stopping))

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        finally:
            left.set()

    def _contents(self, storage: Storage, catalog: Catalog, stopping: Callable[[], bool]) -> "Contents":
        try:
            # 30 MB of memory, and an extra: a process that reads no dataset does without.
            from tasks.search.parts import PartReader  # noqa: PLC0415, I001
            from tasks.search.contents import Contents  # noqa: PLC0415
        except ImportError:
            raise NotReady(
                'This server lacks pyarrow, which reads datasets: pip install "embedq[parquet]".',
                param="pyarrow",
                retry_after_s=120,
            ) from None
        with self._making:
            self.reader = self.reader or PartReader.within(storage, self._max_bytes)
        return Contents(self.reader.until(stopping), catalog)


def dataset_unknown() -> NotFound:
    """The caller has no dataset of this name."""
    return NotFound(
        "dataset_not_found",
        "You have no dataset of this name. GET /v1/datasets lists yours. A table in PostgreSQL is not a dataset.",
        param="name",
    )

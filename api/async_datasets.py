"""What datasets hold, as the web tier reads it: every call in one of a few threads; the first one imports pyarrow."""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request

from api.answer.errors import CallerGone
from api.async_storage import AsyncStorage
from api.waiting.hub import watched
from tasks.errors import DatasetUnknown, NotReady, NotStored, Overloaded
from tasks.ledger.executor import spread
from tasks.records import datasets
from tasks.records.datasets import Catalog, Version
from tasks.storage.storage import Storage

if TYPE_CHECKING:
    from tasks.search.parts import PartReader

T = TypeVar("T")

_THREADS = 2
"""More would take the cores from the queries of everybody."""
_MAX_WAITING = 64
_KNOWN_VERSIONS = 256
_TRIES = 4
_RETRY_AFTER_S = 5


class AsyncDatasets:
    """Reads the datasets of callers. Its vectors in memory belong to this process alone.

    Args:
        storage: where they are.
        max_bytes: of what is kept in memory of all datasets together.
    """

    def __init__(self, storage: AsyncStorage, max_bytes: int) -> None:
        self._storage = storage
        self._max_bytes = max_bytes
        self._reader: PartReader | None = None
        self._making = threading.Lock()
        # Not the threads of the storage: a search computes for as long as a dataset is large, and uploads would wait.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="datasets")
        self._waiting = 0
        self._known: OrderedDict[tuple[str, str], Version] = OrderedDict()
        self._stopping = False

    async def present(self, owner: str, name: str) -> Version:
        """The present version of a dataset that exists.

        Raises:
            DatasetUnknown: there is none.
            StorageUnavailable: it cannot be known.
        """
        if not datasets.is_dataset_name(name):
            raise dataset_unknown()
        storage = await self._storage.open()
        key = (owner, name)
        version = await self._storage.run(datasets.present, storage, owner, name, self._known.get(key))
        if not version.catalog.exists:
            self._known.pop(key, None)
            raise dataset_unknown()
        self._known[key] = version
        self._known.move_to_end(key)
        while len(self._known) > _KNOWN_VERSIONS:
            self._known.popitem(last=False)
        return version

    async def read(self, request: Request, owner: str, name: str, function: "Callable[[PartReader, Catalog], T]") -> T:
        """What `function` makes of the present version of a dataset, in a thread.

        If parts are gone, because the dataset was replaced and swept meanwhile, it is called for the next version.

        Raises:
            DatasetUnknown, StorageUnavailable: as `present`.
            NotStored: a part is not in the storage, or damaged.
            NotReady: pyarrow is not installed here, or the process stops.
            Overloaded: too many calls wait for a thread.
            CallerGone: the client left first. A search of millions of chunks ends at its next read.
        """
        storage = await self._storage.open()
        seen: Version | None = None
        for _ in range(_TRIES):
            version = await self.present(owner, name)
            try:
                return await self._run(request, storage, function, version.catalog)
            except NotStored:
                if version == seen:
                    raise
                seen = version
        raise Overloaded("This dataset changes faster than it can be read; try again.", retry_after_s=_RETRY_AFTER_S)

    def stop(self) -> None:
        """Ends what runs and what waits, at its next read, so that the process need not wait for it."""
        self._stopping = True

    async def _run(
        self, request: Request, storage: Storage, function: "Callable[[PartReader, Catalog], T]", catalog: Catalog
    ) -> T:
        if self._waiting >= _MAX_WAITING:
            raise Overloaded("Too many searches wait here; try again shortly.", retry_after_s=spread(_RETRY_AFTER_S))
        self._waiting += 1
        caller = _Caller()

        def call() -> T:
            return function(self._part_reader(storage).until(lambda: caller.gone or self._stopping), catalog)

        try:
            with watched(request, caller):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except NotReady:
            if caller.gone:
                raise CallerGone from None
            raise
        finally:
            self._waiting -= 1

    def _part_reader(self, storage: Storage) -> "PartReader":
        with self._making:
            if self._reader is None:
                try:
                    # 30 MB of memory, and an extra: a process that reads no dataset does without.
                    from tasks.search.parts import PartReader  # noqa: PLC0415
                except ImportError:
                    raise NotReady(
                        'This server lacks pyarrow, which reads datasets: pip install "embedq[parquet]".',
                        param="pyarrow",
                        retry_after_s=120,
                    ) from None
                self._reader = PartReader.within(storage, self._max_bytes)
            return self._reader


class _Caller:
    """`gone`: the client has closed the connection."""

    def __init__(self) -> None:
        self.gone = False

    def leave(self) -> None:
        self.gone = True


def dataset_unknown() -> DatasetUnknown:
    """The caller has no dataset of this name."""
    return DatasetUnknown(
        "You have no dataset of this name. GET /v1/datasets lists those there are; a table in PostgreSQL is none.",
        param="name",
    )

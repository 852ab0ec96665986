"""What datasets hold, as the web tier reads it: every call in one of a few threads; the first one imports pyarrow."""

import asyncio
import threading
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from starlette.requests import Request

from api.async_storage import AsyncStorage
from api.error_responses import CallerGone
from api.waiting.hub import watched
from tasks.errors import DatasetUnknown, NotReady, NotStored, Overloaded
from tasks.ledger.executor import spread
from tasks.records import datasets
from tasks.records.datasets import Catalog, Version
from tasks.search.kept import room_for_vectors, vector_bytes
from tasks.storage.storage import Storage

if TYPE_CHECKING:
    from tasks.search.parts import PartReader

T = TypeVar("T")
Reading: TypeAlias = "Callable[[PartReader, Catalog], T]"

_THREADS = 2
"""More would take the cores from the queries of everybody."""
_MAX_READS = 64
_MAX_LARGE_SEARCHES = 8
_LARGE_PATIENCE_S = 60
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
        self._reads = _Places(_MAX_READS)
        self._large_searches = _Places(_MAX_LARGE_SEARCHES)
        self._large_turn = asyncio.Lock()
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

    async def read(self, request: Request, owner: str, name: str, function: "Reading[T]") -> T:
        """What `function` makes of the present version of a dataset, in a thread.

        If parts are gone, because the dataset was replaced and swept meanwhile, it is called for the next version.

        Raises:
            DatasetUnknown, StorageUnavailable: as `present`.
            NotStored: a part is not in the storage, or damaged.
            NotReady: pyarrow is not installed here, or the process stops.
            Overloaded: too many calls, or too many of this owner, wait for a thread.
            CallerGone: the client left first. A search of millions of chunks ends at its next read.
        """
        return await self._read(owner, name, lambda catalog: self._run(request, owner, function, catalog))

    async def search(self, request: Request, owner: str, name: str, function: "Reading[T]") -> T:
        """Like `read`, for a `function` that needs all vectors.

        Those that do not fit into memory are read for minutes. Such searches come one after the other, so that a
        thread is left for everybody else.
        """

        async def run(catalog: Catalog) -> T:
            if vector_bytes(catalog.rows, catalog.dimension) <= room_for_vectors(self._max_bytes):
                return await self._run(request, owner, function, catalog)
            with self._large_searches.taken(owner):
                async with self._turn():
                    return await self._run(request, owner, function, catalog)

        return await self._read(owner, name, run)

    async def _read(self, owner: str, name: str, run: Callable[[Catalog], Awaitable[T]]) -> T:
        seen: Version | None = None
        for _ in range(_TRIES):
            version = await self.present(owner, name)
            try:
                return await run(version.catalog)
            except NotStored:
                if version == seen:
                    raise
                seen = version
        raise Overloaded("This dataset changes faster than it can be read; try again.", retry_after_s=_RETRY_AFTER_S)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_LARGE_PATIENCE_S):
                await self._large_turn.acquire()
        except TimeoutError:
            raise Overloaded(
                "Searches of datasets beyond EMBEDQ_SEARCH_BYTES come one after the other, and those before this one "
                "take long; try again later.",
                retry_after_s=spread(_LARGE_PATIENCE_S),
            ) from None
        try:
            yield
        finally:
            self._large_turn.release()

    @property
    def kept_bytes(self) -> int:
        """What is in memory of all datasets."""
        return 0 if self._reader is None else self._reader.kept.size_bytes + self._reader.kept_vectors.size_bytes

    def forget(self, owners: AbstractSet[str] | None) -> None:
        """Drops what is kept of the datasets of these owners; None: of all."""
        for key in [key for key in self._known if owners is None or key[0] in owners]:
            del self._known[key]
        if self._reader is not None:
            self._reader.forget(owners)

    def stop(self) -> None:
        """Ends what runs and what waits, at its next read, so that the process need not wait for it."""
        self._stopping = True

    async def _run(self, request: Request, owner: str, function: "Reading[T]", catalog: Catalog) -> T:
        storage = await self._storage.open()
        caller = _Caller()

        def call() -> T:
            return function(self._part_reader(storage).until(lambda: caller.gone or self._stopping), catalog)

        try:
            with self._reads.taken(owner), watched(request, caller):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except NotReady:
            if caller.gone:
                raise CallerGone from None
            raise

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


class _Places:
    """Calls that run or wait, `most` at a time; an owner gets half of them, so that there is room for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_owners: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str) -> Iterator[None]:
        """A place, as long as the block lasts; raises `Overloaded`."""
        if self._of_owners.total() >= self._most or self._of_owners[owner] >= self._most // 2:
            raise Overloaded("Too many searches wait here; try again shortly.", retry_after_s=spread(_RETRY_AFTER_S))
        self._of_owners[owner] += 1
        try:
            yield
        finally:
            self._of_owners[owner] -= 1
            if not self._of_owners[owner]:
                del self._of_owners[owner]


class _Caller:
    """`gone`: the client has closed the connection."""

    def __init__(self) -> None:
        self.gone = False

    def leave(self) -> None:
        self.gone = True


def dataset_unknown() -> DatasetUnknown:
    """The caller has no dataset of this name."""
    return DatasetUnknown(
        "You have no dataset of this name. GET /v1/datasets lists yours. A table in PostgreSQL is not a dataset.",
        param="name",
    )

"""The index of a dataset's receipts in this process: which part holds which document, for millions of documents.

It is a cache of the receipts in the storage, outside memory (`Runs`). The objects with receipts never change, so it has
only to learn new ones and to forget those that are gone.
"""

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.documents.sinks.parquet.receipts import ids, read_receipts
from tasks.documents.sinks.sink import Receipt
from tasks.documents.sorted_runs import BUCKET, Records, Runs, keys_of
from tasks.records.datasets import Catalog
from tasks.storage.storage import Storage

_MAX_INDEXES = 16
"""Indexes of one storage in one process. Ingestions take turns by pages, and a dropped index has to be learned anew.
Each index costs 120 bytes of the temporary folder for each document, and some open files."""

_HASH_CHARS = 64
_RECORD = [("part", "u4"), ("stamp", "u4"), ("page", "i8"), ("chunks", "i8"), ("content_hash", f"S{_HASH_CHARS}")]


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt, and the name of the object it is in, which tells the part."""

    receipt: Receipt
    receipts: str


class ReceiptIndex:
    """Receipts of one dataset. Several threads may use it, each at its own version of the dataset."""

    def __init__(self, storage: Storage) -> None:
        self._storage = weakref.proxy(storage)  # `index_of` forgets the indexes of storages that are not used any more
        self._lock = threading.RLock()
        self._living = _Living()
        self._runs = Runs(_RECORD, self._living)
        self._parts: list[str] = []  # names of receipts by the number of a record's part
        self._numbers: dict[str, int] = {}  # of the living
        self._documents = 0  # in the living
        self._stamps: dict[tuple[str, str, int, str], int] = {}  # in memory: as many as files of records and ingestions

    def find(
        self, catalog: Catalog, document_ids: Sequence[str], progress: Callable[[], None] = lambda: None
    ) -> Mapping[str, StoredReceipt]:
        """The receipts of documents in a version of the dataset, by id.

        Raises:
            NotStored: the version is so old that its receipts are gone.
            StorageUnavailable, DiskFull: they cannot be read, or the temporary folder cannot be used.
        """
        with self._lock:
            self._sync(catalog, progress)
            stamps = list(self._stamps)
            receipts: dict[str, StoredReceipt] = {}
            for at, (part, stamp, page, chunks, content_hash) in self._runs.find(keys_of(document_ids)):
                fingerprint, ingestion, order, origin = stamps[stamp]
                of = document_ids[at]
                receipt = Receipt(of, content_hash.decode(), fingerprint, ingestion, page, chunks, order, origin)
                receipts[of] = StoredReceipt(receipt, self._parts[part])
            return receipts

    def _sync(self, catalog: Catalog, progress: Callable[[], None]) -> None:
        wanted = {part.receipts: part for part in catalog.parts}
        if wanted.keys() == self._numbers.keys():
            return
        # Old parts first, because a document may have moved from one part to another.
        for name in self._numbers.keys() - wanted.keys():
            self._living.parts[self._numbers.pop(name)] = False
        for name in wanted:
            if name not in self._numbers:
                self._learn(name)
                progress()
        self._documents = sum(part.documents for part in catalog.parts)
        if len(self._runs) > 2 * self._documents + BUCKET:  # more dead ones than living
            self._runs.compact()

    def _learn(self, name: str) -> None:
        table = read_receipts(self._storage, name)
        number = len(self._parts)
        records = self._records(table, number)
        self._parts.append(name)
        self._living.parts = np.append(self._living.parts, True)
        try:
            self._runs.add(keys_of(ids(table)), records)
        except BaseException:
            self._living.parts[number] = False  # some of it may be there: it is learned anew
            raise
        self._numbers[name] = number

    def _records(self, table: pa.Table, part: int) -> Records:
        records: npt.NDArray[Any] = np.zeros(table.num_rows, _RECORD)
        names = ("fingerprint", "ingestion", "order", "origin")
        stamps = zip(*(table[name].to_pylist() for name in names), strict=True)
        hashes = table["content_hash"].to_pylist()
        if any(len(content_hash) > _HASH_CHARS for content_hash in hashes):
            raise ValueError(f"a hash of content has at most {_HASH_CHARS} characters")
        records["part"] = part
        records["stamp"] = [self._stamps.setdefault(stamp, len(self._stamps)) for stamp in stamps]
        records["page"] = table["page"].to_numpy()
        records["chunks"] = table["chunks"].to_numpy()
        records["content_hash"] = hashes
        return records


class _Living:
    """Which records are of parts in the present version; `parts` is indexed by the number of the part.

    It holds no reference to the index: a cycle would keep the index's files open until the next garbage collection.
    """

    def __init__(self) -> None:
        self.parts = np.zeros(0, np.bool_)

    def __call__(self, records: Records) -> npt.NDArray[np.bool_]:
        living: npt.NDArray[np.bool_] = self.parts[records["part"]]
        return living


_indexes: "weakref.WeakKeyDictionary[Storage, dict[str, ReceiptIndex]]" = weakref.WeakKeyDictionary()
_indexes_lock = threading.Lock()


def index_of(storage: Storage, folder: str, max_indexes: int = _MAX_INDEXES) -> ReceiptIndex:
    """The index of a dataset in this process: made at the first call, later the same one while it is in use."""
    with _indexes_lock:
        indexes = _indexes.setdefault(storage, {})
        index = indexes.pop(folder, None) or ReceiptIndex(storage)
        indexes[folder] = index  # those used last are at the end
        while len(indexes) > max_indexes:
            del indexes[next(iter(indexes))]  # not closed: a thread may be using it
        return index

"""The Parquet sink: a dataset whose versions replace each other whole.

A load writes a new part, and copies of the parts from which documents are replaced. No reader sees them until a catalog
with the number of the next version names them. If another load takes that number first, only the parts that it has
changed are written again. Afterwards small parts are merged, if there are many (`to_merge`).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.documents.sinks.parquet.part import Parts
from tasks.documents.sinks.parquet.receipt_index import ReceiptIndex, StoredReceipt, index_of
from tasks.documents.sinks.parquet.receipts import ids
from tasks.documents.sinks.sink import Arrivals, LoadDocument, LoadOutcome, Receipt, Stamp, Verdict, judge
from tasks.documents.sorted_runs import BUCKET, Runs, keys_of
from tasks.errors import Invalid, NotStored, Unavailable
from tasks.pieces import pieces
from tasks.records import datasets
from tasks.records.datasets import GRACE_S, Catalog, DatasetPart, Retired, Version
from tasks.records.ingestions import FOLDER
from tasks.storage.storage import Storage

_AT_ONCE = 256
"""Documents whose receipts are looked up together."""
_TRIES = 5

_log = logging.getLogger(__name__)


class ParquetSink:
    """A dataset as a sink. See `Sink`.

    Its methods raise `StorageUnavailable`, `DiskFull` and `Invalid` too. `anonymous` and `ingestion`: see
    `Dataset`.
    """

    def __init__(
        self, storage: Storage, owner: str, dataset: str, *, anonymous: bool = False, ingestion: str = ""
    ) -> None:
        self._dataset = Dataset(storage, owner, dataset, anonymous=anonymous, ingestion=ingestion)
        self._parts = Parts(storage, self._dataset.folder)
        self._index: ReceiptIndex = index_of(storage, self._dataset.folder)

    def prepare(self, stamp: Stamp, progress: Callable[[], None]) -> None:
        """See `Sink.prepare`."""
        progress()
        self._require_like(self._dataset.present().catalog, stamp)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Sink.known`."""
        for _ in range(_TRIES):
            catalog = self._dataset.present().catalog
            self._dataset.require_same(catalog)
            try:
                receipts = self._index.find(catalog, document_ids)
            except NotStored:
                continue  # it took so long that the dataset has moved on, and the sweep was there
            return {document_id: stored.receipt for document_id, stored in receipts.items()}
        raise NotStored("Receipts of this dataset are not in the storage: somebody else deleted them.")

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """See `Sink.load`."""
        present = self._dataset.present()
        self._require_like(present.catalog, stamp)
        arrivals = Arrivals(stamp)
        earlier: dict[str, StoredReceipt] = {}
        new = self._parts.write(
            self._taken(documents, arrivals, earlier, present.catalog, progress),
            arrivals.taken.values,
            stamp,
            present.catalog.next_part,
        )
        copies = _Copies(self._parts, progress)
        while new is not None and not self._moved(present, new, arrivals, earlier, copies):
            progress()
            present = self._dataset.present()
            self._require_like(present.catalog, stamp)
            if any(part.receipts == new.receipts for part in present.catalog.parts):
                break  # it had succeeded, and only the answer was lost
            earlier = dict(self._index.find(present.catalog, list(arrivals.taken), progress))
        self._merge(progress)
        return arrivals.outcomes

    def keep_only(
        self,
        seen: Callable[[], Iterator[str]],
        stamp: Stamp,
        progress: Callable[[], None],
        allow: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> int:
        """See `Sink.keep_only`."""
        copies = _Copies(self._parts, progress)
        listed = Seen(seen(), progress)
        while True:
            present = self._dataset.present()
            self._dataset.require_same(present.catalog)
            for part in present.catalog.parts:  # before the first copy, which nothing would name
                allow(listed.missing(self._parts.receipts(part), stamp.order))
                progress()
            parts: list[DatasetPart] = []
            deleted = 0
            for part in present.catalog.parts:
                doomed = listed.missing(self._parts.receipts(part), stamp.order)
                parts += copies.without(part, doomed)
                deleted += len(doomed)
                progress()
            if not deleted or self._dataset.move(present, parts, present.catalog.dimension, present.catalog.vectors):
                self._merge(progress)
                return deleted

    def close(self) -> None:
        """Nothing: receipts stay in this process for the next sink on the same dataset."""

    def _require_like(self, catalog: Catalog, stamp: Stamp) -> None:
        self._dataset.require_same(catalog)
        _require_like(catalog, stamp)

    def _taken(
        self,
        documents: Iterable[LoadDocument],
        arrivals: Arrivals,
        earlier: dict[str, StoredReceipt],
        catalog: Catalog,
        progress: Callable[[], None],
    ) -> Iterator[LoadDocument]:
        """The documents that are loaded. `earlier` is filled with receipts of those that the dataset has already."""
        for some in pieces(documents, _AT_ONCE):
            receipts = self._index.find(catalog, [document.id for document in some], progress)
            for document in some:
                _require_shape(document, arrivals.stamp)
                stored = receipts.get(document.id)
                receipt = stored.receipt if stored else None
                size, content_hash = len(document.chunks), document.content_hash
                if arrivals.add(document.id, document.page, content_hash, size, receipt, origin=document.origin):
                    if stored:
                        earlier[document.id] = stored
                    yield document
            progress()

    def _moved(
        self,
        present: Version,
        new: DatasetPart,
        arrivals: Arrivals,
        earlier: Mapping[str, StoredReceipt],
        copies: "_Copies",
    ) -> bool:
        """Whether a version of the dataset has these documents; if not, another load has moved it.

        `earlier`: receipts, in the present version, of documents that are loaded.
        """
        late: dict[str, Verdict] = {}
        replaced: dict[str, list[str]] = {}
        for document_id, stored in earlier.items():
            mine = arrivals.taken[document_id]
            verdict = judge(stored.receipt, mine.page, mine.content_hash, arrivals.stamp, mine.origin)
            if verdict is Verdict.TAKE:
                arrivals.take(document_id, stored.receipt)
                replaced.setdefault(stored.receipts, []).append(document_id)
            else:
                late[document_id] = verdict
        parts = [
            staying
            for part in present.catalog.parts
            for staying in copies.without(part, replaced.get(part.receipts, ()))
        ]
        arriving = copies.without(new, list(late))
        if arriving and not self._dataset.move(
            present, [*parts, *arriving], arrivals.stamp.dimension, arrivals.stamp.vectors
        ):
            return False
        for document_id, verdict in late.items():
            arrivals.drop(document_id, verdict)
        return True

    def _merge(self, progress: Callable[[], None]) -> None:
        """Merges small parts, if there are many. If that fails or comes too late, a later load does it."""
        try:
            present = self._dataset.present()
            small = to_merge(present.catalog.parts)
            if not small:
                return
            merged = self._parts.merged(small, progress)
            others = [part for part in present.catalog.parts if part not in small]
            # If it came too late, the part is left to the sweep. It may have come in time: the answer may be lost, and
            # another load may have moved the dataset since.
            self._dataset.move(present, [*others, merged], present.catalog.dimension, present.catalog.vectors)
        except (Unavailable, NotStored, pa.ArrowException, OSError) as error:  # the last two: a part is damaged
            _log.warning("small parts of %s stay as they are: %s", self._dataset.folder, type(error).__name__)


class _Copies:
    """Copies of parts without some documents, each made once, however often a move has to be tried."""

    def __init__(self, parts: Parts, progress: Callable[[], None]) -> None:
        self._parts = parts
        self.progress = progress
        self._made: dict[tuple[str, frozenset[str]], DatasetPart | None] = {}

    def without(self, part: DatasetPart, document_ids: Sequence[str]) -> list[DatasetPart]:
        """The part itself if there is nothing to leave out, else its copy; [] if nothing is left of it."""
        if not document_ids:
            return [part]
        key = (part.receipts, frozenset(document_ids))
        if key not in self._made:
            self._made[key] = self._parts.without(part, key[1], self.progress)
        copy = self._made[key]
        return [] if copy is None else [copy]


def _require_like(catalog: Catalog, stamp: Stamp) -> None:
    if catalog.dimension not in {0, stamp.dimension}:
        raise Invalid(
            "sink_dimension_mismatch",
            f"The dataset {catalog.dataset!r} holds vectors of {catalog.dimension} dimensions, and this model makes "
            f"{stamp.dimension}. Name another dataset, or the model with which it was made.",
            param="sink.dataset",
        )
    if catalog.vectors not in {"", stamp.vectors}:
        raise Invalid(
            "sink_model_mismatch",
            f"The dataset {catalog.dataset!r} holds vectors of {catalog.vectors}, and these would be of "
            f"{stamp.vectors}: no search can compare them. Name another dataset, or delete this one and load all of it "
            "again.",
            param="sink.dataset",
        )


def _require_shape(document: LoadDocument, stamp: Stamp) -> None:
    wanted = (len(document.chunks), stamp.dimension)
    if document.vectors.shape != wanted:
        raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")


# ---- the dataset: its present version, and the move to the next one --------------------------------------------------


class Dataset:
    """One dataset of one owner.

    Args:
        storage: where it is.
        owner: the caller that it belongs to.
        name: of the dataset.
        anonymous: whether only the ingestion that loads names it.
        ingestion: the one that loads; "" if a dataset that is deleted and made again makes no difference.
    """

    def __init__(
        self, storage: Storage, owner: str, name: str, *, anonymous: bool = False, ingestion: str = ""
    ) -> None:
        self._storage = storage
        self._owner = owner
        self._name = name
        self._anonymous = anonymous
        self._ingestion = ingestion
        self._last: Version | None = None
        self.folder = datasets.dataset_folder(owner, name)

    def present(self) -> Version:
        """The present version, also of a deleted dataset. Raises `StorageUnavailable` if it cannot be known."""
        self._last = datasets.present(self._storage, self._owner, self._name, self._last)
        return self._last

    def require_same(self, catalog: Catalog) -> None:
        """Checks that the ingestion sees the same dataset as before. The first check stores the id of the dataset.

        Raises:
            Invalid: this is another dataset than the ingestion has seen, or none.
            StorageUnavailable, DiskFull: it cannot be known.
        """
        if not self._ingestion:
            return
        name = f"{FOLDER}/{self._ingestion}/dataset"
        kept = catalog.id if catalog.exists else ""
        try:
            same = self._storage.read(name) == kept.encode()
        except NotStored:
            same = not kept or self._storage.create(name, kept.encode())
        if not same:
            raise Invalid(
                "dataset_deleted",
                f"The dataset {self._name!r} was deleted while this ingestion was loading into it. Documents that it "
                "had found or loaded there before are gone. Begin a new ingestion.",
                param="sink.dataset",
            )

    def move(self, present: Version, parts: list[DatasetPart], dimension: int, vectors: str) -> bool:
        """Makes these parts the next version; returns False if another process has moved the dataset.

        Parts with a number below zero are new and get their numbers here. Raises like `present`; it is then unknown
        whether the dataset has been moved.
        """
        old = present.catalog
        numbered, following = [], old.next_part
        for part in parts:
            numbered.append(part if part.number >= 0 else replace(part, number=following))
            following += part.number < 0
        now_ms = time.time_ns() // 1_000_000
        staying = {part.receipts for part in numbered}
        # The sweep deletes them after the grace. It may be late, so they are remembered for longer.
        recent = [gone for gone in old.retired if gone.at_ms > now_ms - 2 * GRACE_S * 1000]
        gone = [Retired(part, now_ms) for part in old.parts if part.receipts not in staying]
        filled = any(part.rows for part in numbered)
        catalog = Catalog(
            old.owner,
            old.dataset,
            id=old.id if old.exists else datasets.new_dataset_id(),
            created_ms=old.created_ms,
            dimension=dimension if filled else 0,
            vectors=vectors if filled else "",
            next_part=following,
            parts=tuple(numbered),
            retired=(*recent, *gone),
            anonymous=self._anonymous and (old.anonymous or not old.exists),
        )
        if not datasets.advance(self._storage, present, catalog):
            return False
        self.require_same(replace(catalog, version=old.version + 1))
        return True


# ---- the documents that an ingestion has seen: millions of ids, in any order, outside memory -------------------------


class Seen:
    """The ids that an ingestion has seen. Raises like `Runs.add`."""

    def __init__(self, document_ids: Iterable[str], progress: Callable[[], None]) -> None:
        self._runs = Runs(np.uint8)
        for some in pieces(document_ids, BUCKET):
            self._runs.add(keys_of(some), np.zeros(len(some), np.uint8))
            progress()

    def missing(self, receipts: pa.Table, order: int) -> list[str]:
        """The documents of some receipts that were not seen, without those of ingestions later than `order`."""
        old = receipts.filter(pc.less_equal(receipts["order"], order))
        candidates = ids(old)
        seen = self._runs.contains(keys_of(candidates))
        return [candidates[at] for at in np.flatnonzero(~seen).tolist()]


# ---- the choice of small parts to merge: loads of a few documents would make thousands -------------------------------

FULL = 8192
"""Rows of a part that is not merged any more. Documents count as rows, and so do 8 KiB each: 64 MiB are full."""
BESIDE = 4
"""Parts of similar size, within a factor of four, that are not merged."""

_ROW_BYTES = 8192


def to_merge(parts: Sequence[DatasetPart]) -> list[DatasetPart]:
    """The parts for the next merge, together at most twice as large as a full one; [] if there are few enough.

    A row is written again about seven times until its part is full, and there are at most 28 parts besides full ones,
    once merges have caught up.
    """
    classes: dict[int, list[DatasetPart]] = {}
    for part in parts:
        if _weight(part) < FULL:
            classes.setdefault(_weight(part).bit_length() // 2, []).append(part)
    crowded = [size for size, alike in classes.items() if len(alike) > BESIDE]
    if not crowded:
        return []
    left = 2 * FULL
    taken = []
    for part in classes[min(crowded)]:
        left -= _weight(part)
        if left < 0:
            break
        taken.append(part)
    return taken


def _weight(part: DatasetPart) -> int:
    return max(1, part.rows, part.documents, part.size_bytes // _ROW_BYTES)

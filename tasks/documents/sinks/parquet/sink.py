"""The Parquet sink: a dataset whose versions follow each other whole.

A load writes a new part and copies of the parts from which documents are replaced, which nobody sees until a catalog
with the next version's number names them. If somebody else was first with that number, only what the other has changed
is done anew. Then some small parts become one, if there are many (`merging`).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from tasks.documents.sinks.parquet.dataset import Dataset
from tasks.documents.sinks.parquet.index import ReceiptIndex, index_of
from tasks.documents.sinks.parquet.merging import to_merge
from tasks.documents.sinks.parquet.part import Parts
from tasks.documents.sinks.parquet.seen import Seen
from tasks.documents.sinks.types import LoadDocument, LoadOutcome, Receipt, Stamp
from tasks.documents.sinks.verdict import Arrivals, Verdict, judge
from tasks.errors import NotStored, SinkDimensionMismatch, SinkModelMismatch, Unavailable
from tasks.ledger.datasets import Catalog, Part, Version
from tasks.ledger.storage import Storage
from tasks.pieces import pieces

_AT_ONCE = 256
"""Documents whose receipts are looked up together."""
_TRIES = 5

_log = logging.getLogger(__name__)


class ParquetSink:
    """A dataset as a sink. See `Sink`.

    Its methods raise `StorageUnavailable` and `DiskFull` too. `anonymous`: the dataset is named by one ingestion alone.
    """

    def __init__(self, storage: Storage, owner: str, dataset: str, *, anonymous: bool = False) -> None:
        self._dataset = Dataset(storage, owner, dataset, anonymous=anonymous)
        self._parts = Parts(storage, self._dataset.folder)
        self._index: ReceiptIndex = index_of(storage, self._dataset.folder)

    def prepare(self, stamp: Stamp, progress: Callable[[], None]) -> None:
        """See `Sink.prepare`."""
        progress()
        _require_like(self._dataset.present().catalog, stamp)

    def known(self, document_ids: Sequence[str]) -> Mapping[str, Receipt]:
        """See `Sink.known`."""
        for _ in range(_TRIES):
            catalog = self._dataset.present().catalog
            try:
                found = self._index.find(catalog, document_ids)
            except NotStored:
                continue  # it took so long that the dataset has moved on, and the sweep was there
            return {document_id: each.receipt for document_id, each in found.items()}
        raise NotStored("Receipts of this dataset are not in the storage: somebody else deleted them.")

    def load(
        self, documents: Iterable[LoadDocument], stamp: Stamp, progress: Callable[[], None]
    ) -> Mapping[str, Sequence[LoadOutcome]]:
        """See `Sink.load`."""
        present = self._dataset.present()
        _require_like(present.catalog, stamp)
        arrivals = Arrivals(stamp)
        new = self._parts.write(
            self._taken(documents, arrivals, present.catalog, stamp, progress),
            arrivals.taken.values,
            stamp,
            present.catalog.next_part,
        )
        copies = _Copies(self._parts, progress)
        while new is not None and not self._moved(present, new, arrivals, copies):
            progress()
            present = self._dataset.present()
            _require_like(present.catalog, stamp)
            if any(part.receipts == new.receipts for part in present.catalog.parts):
                break  # it had succeeded, and only the answer was lost
        self._merge(progress)
        return arrivals.outcomes

    def keep_only(self, seen: Callable[[], Iterator[str]], stamp: Stamp, progress: Callable[[], None]) -> int:
        """See `Sink.keep_only`."""
        copies = _Copies(self._parts, progress)
        known = Seen(seen(), progress)
        while True:
            present = self._dataset.present()
            parts: list[Part] = []
            deleted = 0
            for part in present.catalog.parts:
                doomed = known.missing(self._parts.receipts(part), stamp.order)
                parts += copies.without(part, doomed)
                deleted += len(doomed)
                progress()
            if not deleted or self._dataset.move(present, parts, present.catalog.dimension, present.catalog.vectors):
                self._merge(progress)
                return deleted

    def close(self) -> None:
        """Nothing: receipts stay in this process for the next sink on the same dataset."""

    def _taken(
        self,
        documents: Iterable[LoadDocument],
        arrivals: Arrivals,
        catalog: Catalog,
        stamp: Stamp,
        progress: Callable[[], None],
    ) -> Iterator[LoadDocument]:
        for some in pieces(documents, _AT_ONCE):
            found = self._index.find(catalog, [document.id for document in some], progress)
            for document in some:
                _require_shape(document, stamp)
                known = found[document.id].receipt if document.id in found else None
                size, content_hash = len(document.chunks), document.content_hash
                if arrivals.add(document.id, document.page, content_hash, size, known, origin=document.origin):
                    yield document
            progress()

    def _moved(self, present: Version, new: Part, arrivals: Arrivals, copies: "_Copies") -> bool:
        """Whether the dataset has a version with these documents; if not, somebody else has moved it."""
        found = self._index.find(present.catalog, list(arrivals.taken), copies.progress)
        late: dict[str, Verdict] = {}
        replaced: dict[str, list[str]] = {}
        for document_id, each in found.items():
            mine = arrivals.taken[document_id]
            verdict = judge(each.receipt, mine.page, mine.content_hash, arrivals.stamp, mine.origin)
            if verdict is Verdict.TAKE:
                arrivals.take(document_id, each.receipt)
                replaced.setdefault(each.receipts, []).append(document_id)
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
        """Makes one part of some small ones, if there are many. What fails or comes too late is a later load's."""
        try:
            present = self._dataset.present()
            small = to_merge(present.catalog.parts)
            if not small:
                return
            merged = self._parts.merged(small, progress)
            others = [part for part in present.catalog.parts if part not in small]
            # When it came too late the part is left to the sweep: perhaps it came in time, only the answer was lost,
            # and somebody has moved the dataset on since.
            self._dataset.move(present, [*others, merged], present.catalog.dimension, present.catalog.vectors)
        except (Unavailable, NotStored, pa.ArrowException, OSError) as error:  # the latter: a part is damaged
            _log.warning("small parts of %s stay as they are: %s", self._dataset.folder, type(error).__name__)


class _Copies:
    """Copies of parts without some documents, each made once, however often a move has to be tried."""

    def __init__(self, parts: Parts, progress: Callable[[], None]) -> None:
        self._parts = parts
        self.progress = progress
        self._made: dict[tuple[str, frozenset[str]], Part | None] = {}

    def without(self, part: Part, document_ids: Sequence[str]) -> list[Part]:
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
        raise SinkDimensionMismatch(
            f"The dataset {catalog.dataset!r} holds vectors of {catalog.dimension} dimensions, and this model makes "
            f"{stamp.dimension}. Name another dataset, or the model with which it was made.",
            param="sink.dataset",
        )
    if catalog.vectors not in {"", stamp.vectors}:
        raise SinkModelMismatch(
            f"The dataset {catalog.dataset!r} holds vectors of {catalog.vectors}, and these would be of "
            f"{stamp.vectors}: no search can compare them. Name another dataset, or delete this one and load all of it "
            "again.",
            param="sink.dataset",
        )


def _require_shape(document: LoadDocument, stamp: Stamp) -> None:
    wanted = (len(document.chunks), stamp.dimension)
    if document.vectors.shape != wanted:
        raise ValueError(f"vectors of shape {document.vectors.shape} for {wanted}")

"""Which documents an ingestion has seen: millions of ids, in any order, outside memory."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.documents.sinks.parquet.receipts import ids
from tasks.documents.sinks.parquet.runs import BUCKET, Runs, keys_of
from tasks.pieces import pieces


class Seen:
    """Ids that were seen; raises like `Runs.add`."""

    def __init__(self, document_ids: Iterable[str], progress: Callable[[], None]) -> None:
        self._runs = Runs(np.uint8)
        for some in pieces(document_ids, BUCKET):
            self._runs.add(keys_of(some), np.zeros(len(some), np.uint8))
            progress()

    def missing(self, receipts: pa.Table, order: int) -> list[str]:
        """Documents of some receipts that were not seen and come from no later ingestion than that of `order`."""
        old = receipts.filter(pc.less_equal(receipts["order"], order))
        candidates = ids(old)
        seen = self._runs.contains(keys_of(candidates))
        return [candidates[at] for at in np.flatnonzero(~seen).tolist()]

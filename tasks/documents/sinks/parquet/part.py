"""Parts of a dataset: written from documents, or from an older part without some of its documents."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import pyarrow as pa

from tasks.documents.sinks.parquet.dataset import new_fence
from tasks.documents.sinks.parquet.files import reading_parquet, writing_parquet
from tasks.documents.sinks.parquet.receipts import read_receipts, receipts_table, without, write_receipts
from tasks.documents.sinks.parquet.rows import DICTIONARY, RowWriter, row_schema
from tasks.documents.sinks.types import LoadDocument, Receipt, Stamp
from tasks.errors import EmbedqError
from tasks.ledger.datasets import Part
from tasks.ledger.storage import Storage

NEW = -1
"""Number of a part that no version of the dataset has yet."""


class Parts:
    """Writes parts of one dataset. Nobody sees them until a catalog names them."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def write(
        self, documents: Iterable[LoadDocument], taken: Callable[[], Collection[Receipt]], stamp: Stamp, hint: int
    ) -> Part | None:
        """A part of these documents; None if there were none. `hint`: number to begin the object's name with.

        `taken` is asked for the receipts when the documents are through. Raises like `Storage.writing`, and leaves
        nothing then.
        """
        stored, receipts = self._names(hint)
        try:
            with writing_parquet(self._storage, stored, row_schema(stamp.dimension), DICTIONARY) as (writer, size):
                rows = RowWriter(writer, stamp)
                for document in documents:
                    rows.add(document)
                rows.flush()
            return self._finished(stored, receipts, writer.rows, size(), taken())
        except BaseException:
            for name in (stored, receipts):
                with suppress(EmbedqError):
                    self._storage.delete(name)
            raise

    def _finished(
        self, stored: str, receipts: str, rows: int, size_bytes: int, taken: Collection[Receipt]
    ) -> Part | None:
        if not rows:
            self._storage.delete(stored)
        if not taken:
            return None
        write_receipts(self._storage, receipts, receipts_table(taken))
        return Part(NEW, stored if rows else "", receipts, rows, len(taken), size_bytes if rows else 0)

    def without(self, part: Part, document_ids: Collection[str], progress: Callable[[], None]) -> Part | None:
        """A copy of a part without some of its documents; None if nothing is left.

        Raises like `Storage.read` and `Storage.writing`.
        """
        kept = without(read_receipts(self._storage, part.receipts), "doc_id", document_ids)
        if not kept.num_rows:
            return None
        stored, receipts = self._names(max(part.number, 0))
        rows, size_bytes = self._copy(part, stored, document_ids, progress) if part.stored else (0, 0)
        write_receipts(self._storage, receipts, kept)
        return Part(NEW, stored if rows else "", receipts, rows, kept.num_rows, size_bytes)

    def receipts(self, part: Part) -> pa.Table:
        """Of its documents; raises like `Storage.read`."""
        return read_receipts(self._storage, part.receipts)

    def _copy(
        self, part: Part, stored: str, document_ids: Collection[str], progress: Callable[[], None]
    ) -> tuple[int, int]:
        with reading_parquet(self._storage, part.stored) as old:
            schema = old.schema_arrow
            with writing_parquet(self._storage, stored, schema, DICTIONARY) as (writer, size):
                for group in range(old.num_row_groups):
                    writer.write(without(old.read_row_group(group), "doc_id", document_ids))
                    progress()
        if not writer.rows:
            self._storage.delete(stored)
            return 0, 0
        return writer.rows, size()

    def _names(self, number: int) -> tuple[str, str]:
        # The number in the name is only for people who look into the storage: another writer may get it first.
        beginning = f"{self._folder}/part-{number:06d}.{new_fence()}"
        return f"{beginning}.parquet", f"{beginning}.receipts"

"""Parts of a dataset: written from documents, or from older parts."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain

import pyarrow as pa

from tasks.documents.sinks.parquet.files import Gathering, reading_parquet, writing_parquet
from tasks.documents.sinks.parquet.receipts import read_receipts, receipts_table, without, write_receipts
from tasks.documents.sinks.parquet.rows import DICTIONARY, GROUP_BYTES, GROUP_ROWS, RowWriter, row_schema
from tasks.documents.sinks.types import LoadDocument, Receipt, Stamp
from tasks.errors import EmbedqError
from tasks.ledger.datasets import Part, new_fence
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
        with self._all_or_nothing(stored, receipts):
            with writing_parquet(self._storage, stored, row_schema(stamp.dimension), DICTIONARY) as (writer, size):
                rows = RowWriter(writer, stamp)
                for document in documents:
                    rows.add(document)
                rows.flush()
            return self._finished(stored, receipts, writer.rows, size(), taken())

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
        return self._rewritten([part], kept, document_ids, progress) if kept.num_rows else None

    def merged(self, parts: Sequence[Part], progress: Callable[[], None]) -> Part:
        """One part of all that is in some; raises like `Storage.read` and `Storage.writing`."""
        receipts = pa.concat_tables([read_receipts(self._storage, part.receipts) for part in parts])
        return self._rewritten(parts, receipts, (), progress)

    def receipts(self, part: Part) -> pa.Table:
        """Of its documents; raises like `Storage.read`."""
        return read_receipts(self._storage, part.receipts)

    def _rewritten(
        self, parts: Sequence[Part], kept: pa.Table, doomed: Collection[str], progress: Callable[[], None]
    ) -> Part:
        stored, receipts = self._names(max(0, *(part.number for part in parts)))
        with self._all_or_nothing(stored, receipts):
            rows, size_bytes = self._copy([part.stored for part in parts if part.stored], stored, doomed, progress)
            write_receipts(self._storage, receipts, kept)
        return Part(NEW, stored if rows else "", receipts, rows, kept.num_rows, size_bytes)

    def _copy(
        self, names: Sequence[str], stored: str, doomed: Collection[str], progress: Callable[[], None]
    ) -> tuple[int, int]:
        """Rows and bytes of a copy of some objects without some documents; without rows there is none."""
        with closing(self._groups(names)) as groups:
            first = next(groups, None)
            if first is None:
                return 0, 0
            with writing_parquet(self._storage, stored, first.schema, DICTIONARY) as (writer, size):
                rows = Gathering(writer, GROUP_ROWS, GROUP_BYTES)
                for group in chain([first], groups):
                    rows.add(without(group, "doc_id", doomed))
                    progress()
                rows.flush()
        if not writer.rows:
            self._storage.delete(stored)
            return 0, 0
        return writer.rows, size()

    def _groups(self, names: Sequence[str]) -> Generator[pa.Table, None, None]:
        for name in names:
            with reading_parquet(self._storage, name) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)

    @contextmanager
    def _all_or_nothing(self, *names: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._delete(*names)
            raise

    def _delete(self, *names: str) -> None:
        for name in names:
            with suppress(EmbedqError):
                if name:
                    self._storage.delete(name)

    def _names(self, number: int) -> tuple[str, str]:
        # The number in the name is only for people who look into the storage: another writer may get it first.
        beginning = f"{self._folder}/part-{number:06d}.{new_fence()}"
        return f"{beginning}.parquet", f"{beginning}.receipts"

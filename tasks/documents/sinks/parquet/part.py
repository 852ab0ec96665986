"""Parts of a dataset: written from documents, or from older parts."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from tasks.documents.sinks.parquet.parquet_files import Gathering, TableWriter, reading_parquet, writing_parquet
from tasks.documents.sinks.parquet.receipts import read_receipts, receipts_table, without, write_receipts
from tasks.documents.sinks.sink import LoadDocument, Receipt, Stamp, chunk_id
from tasks.errors import EmbedqError
from tasks.records.datasets import DatasetPart, new_fence
from tasks.storage.storage import Storage

NEW = -1
"""Number of a part that no version of the dataset has yet."""


class Parts:
    """Writes parts of one dataset. No reader sees them until a catalog names them."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def write(
        self, documents: Iterable[LoadDocument], taken: Callable[[], Collection[Receipt]], stamp: Stamp, hint: int
    ) -> DatasetPart | None:
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
    ) -> DatasetPart | None:
        if not rows:
            self._storage.delete(stored)
        if not taken:
            return None
        write_receipts(self._storage, receipts, receipts_table(taken))
        return DatasetPart(NEW, stored if rows else "", receipts, rows, len(taken), size_bytes if rows else 0)

    def without(
        self, part: DatasetPart, document_ids: Collection[str], progress: Callable[[], None]
    ) -> DatasetPart | None:
        """A copy of a part without some of its documents; None if nothing is left.

        Raises like `Storage.read` and `Storage.writing`.
        """
        kept = without(read_receipts(self._storage, part.receipts), "doc_id", document_ids)
        return self._rewritten([part], kept, document_ids, progress) if kept.num_rows else None

    def merged(self, parts: Sequence[DatasetPart], progress: Callable[[], None]) -> DatasetPart:
        """One part of all that is in some; raises like `Storage.read` and `Storage.writing`."""
        receipts = pa.concat_tables([read_receipts(self._storage, part.receipts) for part in parts])
        return self._rewritten(parts, receipts, (), progress)

    def receipts(self, part: DatasetPart) -> pa.Table:
        """Of its documents; raises like `Storage.read`."""
        return read_receipts(self._storage, part.receipts)

    def _rewritten(
        self, parts: Sequence[DatasetPart], kept: pa.Table, doomed: Collection[str], progress: Callable[[], None]
    ) -> DatasetPart:
        stored, receipts = self._names(max(0, *(part.number for part in parts)))
        with self._all_or_nothing(stored, receipts):
            rows, size_bytes = self._copy([part.stored for part in parts if part.stored], stored, doomed, progress)
            write_receipts(self._storage, receipts, kept)
        return DatasetPart(NEW, stored if rows else "", receipts, rows, kept.num_rows, size_bytes)

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
        # The number in the name is only a hint for people: another writer may take it first.
        beginning = f"{self._folder}/part-{number:06d}.{new_fence()}"
        return f"{beginning}.parquet", f"{beginning}.receipts"


# ---- rows: what users read -------------------------------------------------------------------------------------------

GROUP_ROWS = 4096
GROUP_BYTES = 16 * 2**20
"""A row group ends with the row that reaches either, text and vectors counted: what is held while one is written."""

DICTIONARY = ["doc_id", "headings.list.element", "source_uri", "content_hash", "metadata", "model", "model_revision"]
"""Columns whose values repeat. Chunk ids and texts do not, and vectors never."""


def row_schema(dimension: int) -> pa.Schema:
    """Columns of a part."""
    return pa.schema(
        [
            pa.field("doc_id", pa.string(), nullable=False),
            pa.field("chunk_id", pa.string(), nullable=False),
            pa.field("chunk_index", pa.int32(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("start", pa.int64(), nullable=False),
            pa.field("end", pa.int64(), nullable=False),
            pa.field("page", pa.int32()),
            pa.field("headings", pa.list_(pa.string()), nullable=False),
            pa.field("token_count", pa.int32(), nullable=False),
            pa.field("truncated", pa.bool_(), nullable=False),
            pa.field("source_uri", pa.string(), nullable=False),
            pa.field("content_hash", pa.string(), nullable=False),
            pa.field("metadata", pa.string(), nullable=False),
            pa.field("embedding", pa.list_(pa.float32(), dimension), nullable=False),
            pa.field("model", pa.string(), nullable=False),
            pa.field("model_revision", pa.string(), nullable=False),
        ]
    )


_of_chunk = attrgetter("index", "text", "start", "end", "page", "headings", "token_count", "truncated")


class RowWriter:
    """Turns documents into row groups."""

    def __init__(self, writer: TableWriter, stamp: Stamp) -> None:
        self._writer = writer
        self._stamp = stamp
        self._schema = row_schema(stamp.dimension)
        self._rows: list[tuple[Any, ...]] = []  # without the vector and what is the same for all
        self._vectors: list[npt.NDArray[np.float32]] = []
        self._size_bytes = 0

    def add(self, document: LoadDocument) -> None:
        """Appends the chunks of a document; raises like `TableWriter.write`."""
        metadata = orjson.dumps(dict(document.metadata)).decode() if document.metadata else "{}"
        row_bytes = 4 * self._stamp.dimension + len(metadata)
        of_document = document.uri, document.content_hash, metadata
        first = 0
        for at, c in enumerate(document.chunks):
            row_id = chunk_id(document.id, self._stamp.fingerprint, c.index)
            self._rows.append((document.id, row_id, *_of_chunk(c), *of_document))
            self._size_bytes += row_bytes + len(c.text)
            if len(self._rows) >= GROUP_ROWS or self._size_bytes >= GROUP_BYTES:
                self._vectors.append(document.vectors[first : at + 1])
                self.flush()
                first = at + 1
        self._vectors.append(document.vectors[first:])

    def flush(self) -> None:
        """Writes what is held; to be called at the end."""
        rows, vectors = self._rows, self._vectors
        self._rows, self._vectors, self._size_bytes = [], [], 0
        if not rows:
            return
        columns = zip(zip(*rows, strict=True), self._schema, strict=False)
        values = pa.array(np.concatenate(vectors, dtype=np.float32).reshape(-1))
        arrays = [
            *(pa.array(column, kind.type) for column, kind in columns),
            pa.FixedSizeListArray.from_arrays(values, self._stamp.dimension),
            *(pa.repeat(pa.scalar(name), len(rows)) for name in (self._stamp.model, self._stamp.model_revision)),
        ]
        self._writer.write(pa.Table.from_arrays(arrays, schema=self._schema))

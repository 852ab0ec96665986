"""Rows of a dataset: what users read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from tasks.documents.sinks.parquet.files import TableWriter
from tasks.documents.sinks.types import LoadDocument, Stamp, chunk_id

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


@dataclass(slots=True)
class _Group:
    columns: dict[str, list[Any]] = field(default_factory=dict)
    vectors: list[npt.NDArray[np.float32]] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0


class RowWriter:
    """Turns documents into row groups."""

    def __init__(self, writer: TableWriter, stamp: Stamp) -> None:
        self._writer = writer
        self._stamp = stamp
        self._schema = row_schema(stamp.dimension)
        self._group = _Group()

    def add(self, document: LoadDocument) -> None:
        """Appends the chunks of a document; raises like `TableWriter.write`."""
        for first, last in self._pieces(document):
            self._append(document, first, last)
            if self._full:
                self.flush()

    def flush(self) -> None:
        """Writes what is held; to be called at the end."""
        group, self._group = self._group, _Group()
        if not group.rows:
            return
        vectors = np.concatenate(group.vectors) if len(group.vectors) > 1 else group.vectors[0]
        values = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
        constant = {"model": self._stamp.model, "model_revision": self._stamp.model_revision}
        arrays = []
        for column in self._schema:
            if column.name == "embedding":
                arrays.append(pa.FixedSizeListArray.from_arrays(values, self._stamp.dimension))
            elif column.name in constant:
                arrays.append(pa.repeat(pa.scalar(constant[column.name]), group.rows))
            else:
                arrays.append(pa.array(group.columns[column.name], column.type))
        self._writer.write(pa.Table.from_arrays(arrays, schema=self._schema))

    @property
    def _full(self) -> bool:
        return self._group.rows >= GROUP_ROWS or self._group.size_bytes >= GROUP_BYTES

    def _pieces(self, document: LoadDocument) -> Iterator[tuple[int, int]]:
        """Ranges of chunks, each of which still fits into the group at hand."""
        row_bytes = 4 * self._stamp.dimension + len(_metadata(document))
        first = size = 0
        for i, chunk in enumerate(document.chunks):
            size += row_bytes + len(chunk.text)
            rows = self._group.rows + i + 1 - first
            if rows >= GROUP_ROWS or self._group.size_bytes + size >= GROUP_BYTES:
                yield first, i + 1
                first, size = i + 1, 0
        if first < len(document.chunks):
            yield first, len(document.chunks)

    def _append(self, document: LoadDocument, first: int, last: int) -> None:
        chunks = document.chunks[first:last]
        n = len(chunks)
        fingerprint = self._stamp.fingerprint
        metadata = _metadata(document)
        columns: dict[str, list[Any]] = {
            "doc_id": [document.id] * n,
            "chunk_id": [chunk_id(document.id, fingerprint, c.index) for c in chunks],
            "chunk_index": [c.index for c in chunks],
            "text": [c.text for c in chunks],
            "start": [c.start for c in chunks],
            "end": [c.end for c in chunks],
            "page": [c.page for c in chunks],
            "headings": [list(c.headings) for c in chunks],
            "token_count": [c.token_count for c in chunks],
            "truncated": [c.truncated for c in chunks],
            "source_uri": [document.uri] * n,
            "content_hash": [document.content_hash] * n,
            "metadata": [metadata] * n,
        }
        group = self._group
        for name, values in columns.items():
            group.columns.setdefault(name, []).extend(values)
        group.vectors.append(document.vectors[first:last])
        group.rows += n
        group.size_bytes += sum(len(c.text) for c in chunks) + (4 * self._stamp.dimension + len(metadata)) * n


def _metadata(document: LoadDocument) -> str:
    return orjson.dumps(dict(document.metadata)).decode()

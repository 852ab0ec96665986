"""A dataset as Parquet: parts of some 8,192 chunks, of which only those that have changed have another name."""

import re
from collections.abc import Iterable, Sequence
from typing import IO, Any, NamedTuple, Self

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.datasets.store import chunk_id
from tasks.unshown import unshown

_GROUP_ROWS = 4096
_ZSTD_LEVEL = 1
_NAME = re.compile(r"part-([0-9]{1,15})-([0-9]{1,15})\.parquet")
_DICTIONARY = ["doc_id", "headings.list.element", "source_uri", "content_hash", "metadata", "model", "model_revision"]
"""Columns whose values repeat. Chunk ids and texts do not, and vectors never."""


class ExportPart(NamedTuple):
    """One part: documents from number `first` on, as the dataset's version `changed` has made them."""

    first: int
    changed: int
    chunks: int = 0

    @property
    def name(self) -> str:
        """Within one dataset it stands for the same rows for ever."""
        return f"part-{self.first:09d}-{self.changed}.parquet"

    @classmethod
    def from_name(cls, name: str) -> Self | None:
        """Inverse of `name`; None: it is none."""
        match = _NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2])) if match else None


@unshown("text", "headings", "metadata", "embedding")
class ExportRow(NamedTuple):
    """A chunk with all that is told of it. `headings`, `metadata`: JSON. `embedding`: float32, little endian."""

    doc_id: str
    fingerprint: str
    chunk_index: int
    text: str
    start: int
    end: int
    page: int | None
    headings: str
    token_count: int
    truncated: bool
    source_uri: str
    content_hash: str
    metadata: str
    embedding: bytes
    model: str
    model_revision: str


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


def write_part(file: IO[bytes], rows: Iterable[Sequence[ExportRow]], dimension: int) -> int:
    """Writes lists of rows, each into row groups of its own, as one Parquet file; returns how many rows."""
    schema, written = row_schema(dimension), 0
    with pq.ParquetWriter(
        file, schema, compression="zstd", compression_level=_ZSTD_LEVEL, use_dictionary=_DICTIONARY
    ) as writer:
        for some in rows:
            if some:
                writer.write_table(_table(some, schema, dimension), row_group_size=_GROUP_ROWS)
                written += len(some)
    return written


def _table(rows: Sequence[ExportRow], schema: pa.Schema, dimension: int) -> pa.Table:
    columns: dict[str, Any] = dict(zip(ExportRow._fields, zip(*rows, strict=True), strict=True))
    columns["chunk_id"] = [chunk_id(row.doc_id, row.fingerprint, row.chunk_index) for row in rows]
    columns["truncated"] = [bool(flag) for flag in columns["truncated"]]
    columns["headings"] = [orjson.loads(text) for text in columns["headings"]]
    numbers = pa.array(np.frombuffer(b"".join(columns["embedding"]), "<f4"))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, dimension)
    arrays = [vectors if kind.name == "embedding" else pa.array(columns[kind.name], kind.type) for kind in schema]
    return pa.Table.from_arrays(arrays, schema=schema)

"""A dataset as Parquet: parts of some 8,192 chunks, of which only those that have changed have another name."""

from collections.abc import Iterable, Sequence
from typing import IO, Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.datasets.contents import ExportRow
from tasks.datasets.store import chunk_id

_GROUP_ROWS = 4096
_ZSTD_LEVEL = 1
_DICTIONARY = ["doc_id", "headings.list.element", "source_uri", "content_hash", "metadata", "model", "model_revision"]
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

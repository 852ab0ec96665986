"""Receipts of a part, in an object beside it: which documents are in it, also those without rows."""

from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.documents.sinks.parquet.parquet_files import writing_parquet
from tasks.documents.sinks.sink import Receipt
from tasks.storage.storage import Storage

# In the order of `Receipt`.
_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string(), nullable=False),
        pa.field("content_hash", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("ingestion", pa.string(), nullable=False),
        pa.field("page", pa.int64(), nullable=False),
        pa.field("chunks", pa.int64(), nullable=False),
        pa.field("order", pa.int64(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
    ]
)


def receipts_table(receipts: Iterable[Receipt]) -> pa.Table:
    """The table of receipts as it is stored."""
    rows = list(receipts)
    columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def write_receipts(storage: Storage, name: str, table: pa.Table) -> None:
    """Stores a table of receipts; raises like `Storage.writing`."""
    repeated = ["fingerprint", "ingestion", "page", "order", "origin"]
    with writing_parquet(storage, name, _SCHEMA, repeated) as (writer, _):
        writer.write(table)


def read_receipts(storage: Storage, name: str) -> pa.Table:
    """The receipts of one part; raises like `Storage.read`."""
    table = pq.read_table(pa.BufferReader(storage.read(name)))
    if "origin" not in table.column_names:  # of an earlier version
        table = table.append_column(_SCHEMA.field("origin"), pa.repeat(pa.scalar(""), table.num_rows))
    return table


def without(table: pa.Table, column: str, document_ids: Collection[str]) -> pa.Table:
    """A table without the rows of some documents."""
    doomed = pa.array(list(document_ids), pa.string())
    return table.filter(pc.invert(pc.is_in(table[column], value_set=doomed)))


def ids(table: pa.Table) -> Sequence[str]:
    """The ids of the documents, in order."""
    document_ids: list[str] = table["doc_id"].to_pylist()
    return document_ids

"""Parquet files into the storage and out of it."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.ledger.spool import spooling
from tasks.ledger.storage import Storage, Writer

_READ_BYTES = 4 * 2**20


class _Target(io.RawIOBase):
    """A writer of the storage, as a file."""

    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer
        self.abandoned = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self.abandoned:
            self._writer.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self._writer.size_bytes


class TableWriter:
    """Appends tables, one row group each."""

    def __init__(self, parquet: pq.ParquetWriter) -> None:
        self._parquet = parquet
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Appends a row group, if there are rows.

        Raises:
            DiskFull, StorageUnavailable: like `Storage.writing`.
        """
        if table.num_rows:
            self._parquet.write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows


@contextmanager
def writing_parquet(
    storage: Storage, name: str, schema: pa.Schema, dictionary: list[str]
) -> Iterator[tuple[TableWriter, Callable[[], int]]]:
    """A writer of tables, and what tells the size of the object once the block is over; raises as `Storage.writing`."""
    with storage.writing(name) as writer:
        target = _Target(writer)
        parquet = pq.ParquetWriter(
            target, schema, compression="zstd", compression_level=1, use_dictionary=dictionary, version="2.6"
        )
        try:
            yield TableWriter(parquet), lambda: writer.size_bytes
        except BaseException:
            target.abandoned = True  # closing writes the end of the file, to what may just have failed
            raise
        finally:
            parquet.close()


@contextmanager
def reading_parquet(storage: Storage, name: str) -> Iterator[pq.ParquetFile]:
    """A stored Parquet file, copied into the temporary folder first: reading jumps about in it.

    Raises:
        NotStored: there is no such object.
        StorageUnavailable, DiskFull: the storage or the temporary folder cannot be used.
    """
    with spooling() as spool:
        for piece in storage.chunks(name, chunk_bytes=_READ_BYTES):
            spool.write(piece)
        path = spool.finish()
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as found:
            yield found

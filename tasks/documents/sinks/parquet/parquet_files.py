"""Writes Parquet files to the storage, and reads them from it."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.storage.storage import Storage, Writer
from tasks.storage.writer import spooling

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


class Gathering:
    """Appends tables of any size, as row groups of at least `rows` rows or `size_bytes` bytes but for the last one."""

    def __init__(self, writer: TableWriter, rows: int, size_bytes: int) -> None:
        self._writer = writer
        self._rows = rows
        self._size_bytes = size_bytes
        self._held: list[pa.Table] = []

    def add(self, table: pa.Table) -> None:
        """Appends a table; raises like `TableWriter.write`."""
        self._held.append(table)
        rows = sum(held.num_rows for held in self._held)
        if rows >= self._rows or sum(held.nbytes for held in self._held) >= self._size_bytes:
            self.flush()

    def flush(self) -> None:
        """Writes what is held; to be called at the end."""
        if self._held:
            self._writer.write(pa.concat_tables(self._held))
        self._held = []


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
    """A stored Parquet file, copied into the temporary folder first, because it is not read in order.

    Raises:
        NotStored: there is no such object.
        StorageUnavailable, DiskFull: the storage or the temporary folder cannot be used.
    """
    with spooling() as spool:
        for piece in storage.chunks(name, chunk_bytes=_READ_BYTES):
            spool.write(piece)
        path = spool.finish()
        with pq.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
            yield file
